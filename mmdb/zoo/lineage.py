"""How models came to be, and what became of data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mmdb.zoo.calls import Calls

if TYPE_CHECKING:  # it draws: a program that asks for rows need not load that
    from mmdb.report.notebook import LineageRows


class Lineage(Calls):
    """Part of `Zoo`."""

    def lineage(
        self,
        entity: str,
        direction: str = "up",
        *,
        hops: bool | None = None,
        max_depth: int | None = None,
    ) -> LineageRows:
        """Return the edges that lead to an entity, or away from it, those next to it first.

        Args:
            entity: "model:name@version", "dataset:name", "column:table.column" and others, see
                docs/lineage.md; the name alone where it is of one thing.
            direction: "up" to what it came from, "down" to what came of it.
            hops: whether partitions and hops are shown; left out, on the way up alone.
            max_depth: edges that the farthest is away at most.
        Returns:
            Rows of depth, kind (of the farther end), parent, child, via; a notebook draws them.
        Raises:
            EntityNotFound, AmbiguousEntity, InvalidOption
        """
        from mmdb.report.notebook import LineageRows

        rows = self._call(
            "lineage", entity=entity, direction=direction, hops=hops, max_depth=max_depth
        )
        return LineageRows(rows, "down" if direction == "down" else "up")
