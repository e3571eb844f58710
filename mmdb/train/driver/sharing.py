"""Which candidates of a run train on the same features, so that they can do a hop together."""

from __future__ import annotations

from collections.abc import Iterable

from mmdb.db.queries import load
from mmdb.train.driver.control import Control
from mmdb.train.driver.runs import Member, RunState


class Sharing:
    """The features of a run's candidates, as far as they are settled.

    Those of candidates that freeze layers are settled with the first hop of one of them, if nobody
    has done it before.
    """

    def __init__(self, control: Control, run: RunState) -> None:
        """Read what is settled of a run under its lock."""
        self._control, self._run_id = control, run.run_id
        self._fuses = run.options.features.fuse > 1 and not run.is_spread
        self._open: dict[int, int] = {}  # candidates by ordinal whose features are not settled
        self._features = self._find() if self._fuses else {}

    def of(self, member: Member) -> int | None:
        """Return the features of a candidate; None where it has none, or they are not settled."""
        found = self._features.get(member.candidate_id)
        freezes = member.config.get("freeze_up_to") is not None
        if self._fuses and found is None and freezes:
            self._open[member.ordinal] = member.candidate_id
        return found

    def settled_by(self, ordinals: Iterable[int]) -> list[tuple[int, int]]:
        """Return ordinal and features of candidates that the hops of some may have settled.

        The database is asked after the first hop of a candidate, as long as there is something to
        learn.
        """
        first = [ordinal for ordinal in ordinals if ordinal in self._open] if self._open else []
        if not first:
            return []
        self._features = self._find()
        found = [(o, self._features.get(c)) for o, c in self._open.items()]
        settled = [(ordinal, feature) for ordinal, feature in found if feature is not None]
        for ordinal in (*first, *(ordinal for ordinal, _ in settled)):
            self._open.pop(ordinal, None)
        return settled

    def _find(self) -> dict[int, int]:
        """Return the features of the run's candidates that are settled, by candidate_id."""
        query, run_id = load("features").find_candidates, self._run_id
        rows = self._control.do(lambda c: c.rows(query, run_id=run_id))
        return {row["candidate_id"]: row["feature_id"] for row in rows}
