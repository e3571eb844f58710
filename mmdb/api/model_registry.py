"""Tags, aliases and notes of models, and who may use what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from mmdb.api.calls import Calls
from mmdb.db.install import has_teams
from mmdb.db.queries import load
from mmdb.errors import InvalidOption

if TYPE_CHECKING:
    from mmdb.report.notebook import Differences
    from mmdb.store.garbage import GarbageReport
    from mmdb.store.models.registry import Dropped

_Q = load("owners")
Kind = Literal["model", "dataset", "run"]


class RegistryCalls(Calls):
    """Part of `Database`."""

    def set_alias(self, model: str, alias: str, *, version: int | None = None) -> str:
        """Let an alias point at a version; return `name@version`. Its earlier places are kept.

        Raises:
            ModelNotFound, InvalidName
        """
        from mmdb.store.models import registry

        return registry.set_alias(self.connection, model, version, alias)

    def drop_alias(self, model: str, alias: str) -> str:
        """Take an alias away; return the `name@version` that it was at.

        Raises:
            AliasNotFound
        """
        from mmdb.store.models import registry

        return registry.drop_alias(self.connection, model, alias)

    def tag(self, model: str, **tags: str | None) -> None:
        """Give a model tags; None takes one away.

        Raises:
            ModelNotFound
        """
        from mmdb.store.models import registry

        with self.connection.transaction():
            for key, value in tags.items():
                registry.tag_model(self.connection, model, key, value)

    def log_metric(self, model: str, metric: str, value: float, *, dataset: str = "") -> None:
        """Give a model a metric, or another value for it.

        Raises:
            ModelNotFound, InvalidOption
        """
        from mmdb.store.models import registry

        registry.log_metric(self.connection, model, metric, value, dataset=dataset)

    def note(self, model: str, note: str) -> None:
        """Write a note about a model.

        Raises:
            ModelNotFound
        """
        from mmdb.store.models import registry

        registry.note_model(self.connection, model, note)

    def diff(self, a: str, b: str, *, norms: bool = True) -> Differences:
        """Return the tensors in which two models differ; one kept as a recipe is made again.

        Args:
            norms: also read the tensors that both have, and say how far they are apart.
        Raises:
            ModelNotFound, RecipeError
        """
        from mmdb.report.notebook import Differences
        from mmdb.store.models.diff import model_diff
        from mmdb.train.replay.recipe_replay import load_weights

        found = model_diff(self.connection, a, b, norms=norms, recover=load_weights)
        return Differences(found, f"From {a} to {b}")

    def drop_model(self, model: str, version: int | None = None) -> Dropped:
        """Drop a version of a model; its lineage stays, its bytes go with `gc`.

        Raises:
            ModelNotFound, ModelInUse
        """
        from mmdb.store.models import registry

        return registry.drop_model(self.connection, model, version)

    def gc(self, *, dry_run: bool = True, grace: str = "7 days") -> GarbageReport:
        """Delete what no model needs and give its space back, or say what would go.

        Args:
            grace: how long ago a model must have been dropped.
        Raises:
            InvalidOption, RightsMissing
        """
        from mmdb.store.garbage import gc_and_reclaim

        return gc_and_reclaim(self.connection, dry_run=dry_run, grace=grace)

    def share_model(self, model: str, role: str, *, shared: bool = True) -> int:
        """Let a role and its members read `name@version`, or every version the name has by now.

        Args:
            role: a role of the server, or "public" for everybody.
            shared: False takes it back.
        Returns:
            How many versions changed hands.
        Raises:
            InvalidOption: the database has no teams, or the server no such role.
            ModelNotFound: it is not this role's own.
        """
        return self._share("model", model, role, shared)

    def share_dataset(self, dataset: str, role: str, *, shared: bool = True) -> int:
        """Let a role read a dataset's rows, and train on them; see `share_model`.

        Raises:
            InvalidOption, DatasetNotFound
        """
        return self._share("dataset", dataset, role, shared)

    def share_run(self, run: str, role: str, *, shared: bool = True) -> int:
        """Let a role see a run with its candidates and hops; see `share_model`.

        Raises:
            InvalidOption, RunNotFound
        """
        return self._share("run", run, role, shared)

    def _share(self, kind: Kind, name: str, role: str, shared: bool) -> int:
        if self.connection.engine != "postgres" or not has_teams(self.connection):
            raise InvalidOption(
                "This database has no teams: everybody reads everything.",
                hint="The owner makes it one by `mmdb install --teams URL`, on PostgreSQL.",
            )
        query = {"model": _Q.share_model, "dataset": _Q.share_dataset, "run": _Q.share_run}[kind]
        (row,) = self.connection.rows(query, name=name, role=role, shared=shared)
        return int(row["changed"])
