"""Naming, tagging, comparing and dropping models."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmdb.db.url import AnyConnection

if TYPE_CHECKING:
    from mmdb.report.notebook import Differences
    from mmdb.store.garbage import GarbageReport
    from mmdb.store.models.registry import Dropped


class RegistryCalls:
    """Part of `Database`."""

    connection: AnyConnection

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
        """Return the tensors in which two models differ.

        Args:
            norms: also read the tensors that both have, and say how far they are apart.
        Raises:
            ModelNotFound
        """
        from mmdb.report.notebook import Differences
        from mmdb.store.models.diff import model_diff

        found = model_diff(self.connection, a, b, norms=norms)
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
