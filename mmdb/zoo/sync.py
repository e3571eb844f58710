"""Models from and to other databases."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from mmdb.db.url import AnyConnection

if TYPE_CHECKING:  # these load torch
    from mmdb.store.models.recover import Verify
    from mmdb.store.sync.push_pull import CopyReport

_Report = Callable[[int, int], None]
_Weights = Literal["auto", "always", "never"]


class Sync:
    """Part of `Zoo`."""

    connection: AnyConnection

    def push(
        self,
        model: str,
        *,
        to: str,
        name: str | None = None,
        version: Literal["next"] | None = None,
        all_versions: bool = False,
        aliases: bool = False,
        data: bool = False,
        weights: _Weights = "auto",
        verify: Verify = "full",
        on_progress: _Report | None = None,
    ) -> CopyReport:
        """Copy a model into the database of a URL, sending what it lacks; docs/sync.md.

        Args:
            to: a DuckDB file is made as needed.
            name, version: "next" for the next free version, where the same is taken there.
            all_versions: of the name, oldest first.
            aliases: of this version, too.
            data: the datasets behind it, too.
            weights: of a model that is kept as a recipe.
            on_progress: called with the stored bytes sent and to be sent, as far as planned.
        Raises:
            ModelNotFound, AlreadyExists, InvalidOption, InTransaction
            WrongUrl, NotInstalled, RightsMissing
            ConnectionLost: call again; what has arrived is not sent again.
            CorruptTensor, NotReplayable
        """
        from mmdb.store.sync.push_pull import push

        return push(
            self.connection,
            model,
            to=to,
            **_arguments(name, version, aliases, data, weights, verify, all_versions, on_progress),
        )

    def pull(
        self,
        model: str,
        *,
        from_: str,
        name: str | None = None,
        version: Literal["next"] | None = None,
        all_versions: bool = False,
        aliases: bool = False,
        data: bool = False,
        weights: _Weights = "auto",
        verify: Verify = "full",
        on_progress: _Report | None = None,
    ) -> CopyReport:
        """Copy a model out of the database of a URL; see `push`."""
        from mmdb.store.sync.push_pull import pull

        return pull(
            self.connection,
            model,
            from_=from_,
            **_arguments(name, version, aliases, data, weights, verify, all_versions, on_progress),
        )


def _arguments(
    name: str | None,
    version: Literal["next"] | None,
    aliases: bool,
    data: bool,
    weights: _Weights,
    verify: Verify,
    all_versions: bool,
    on_progress: _Report | None,
) -> dict[str, Any]:
    from mmdb.store.sync.push_pull import CopyOptions
    from mmdb.train.replay.recipe_replay import recover_module

    return {
        "options": CopyOptions(
            name=name,
            version=version,
            aliases=aliases,
            data=data,
            weights=weights,
            verify=verify,
        ),
        "all_versions": all_versions,
        "replay": recover_module,
        "on_progress": on_progress,
    }
