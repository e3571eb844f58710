"""Plans a run anew when it is about to leave the band of its plan."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

from mmdb.db.connection import Row
from mmdb.db.queries import load
from mmdb.messages import seconds_text
from mmdb.train.drive.locked_connection import LockedConnection
from mmdb.train.drive.run_state import RunState
from mmdb.train.ledger.run_options import Decide
from mmdb.train.watch import RunView

#: Of the seconds that a run has left, what planning it anew may take: idle workers wait for it.
PLANNING_SHARE = 0.02
#: Hops of each worker before which a run's seconds say little: the first ones warm up.
FEW_HOPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """How many seconds after its first hop a run is said to end."""

    p10_s: float
    p50_s: float
    p90_s: float

    def holds(self, seconds: float) -> bool:
        """Return whether what a run takes lies in the band."""
        return self.p10_s <= seconds <= self.p90_s

    def __str__(self) -> str:
        """Return it in words."""
        low, middle, high = map(seconds_text, (self.p10_s, self.p50_s, self.p90_s))
        return f"{middle} ({low} to {high})"


def forecast_of(plan: Row, elapsed_s: float = 0.0, left: float = 1.0) -> Forecast:
    """Return what a plan says of a run that goes on.

    Args:
        plan: of the whole run, as `find_forecast` returns it.
        left: share of its hops that is not done.
    """
    low, middle, high = (elapsed_s + left * plan[name] for name in ("t_p10", "t_p50", "t_p90"))
    return Forecast(p10_s=low, p50_s=middle, p90_s=high)


class Replanner:
    """Compares a run that goes on with its plan, and plans it anew once each time it misses it."""

    def __init__(
        self, control: LockedConnection, run: RunState, decide: Decide, planning_s: float
    ) -> None:
        """Begin with the plan that a run was started with, if there is one.

        Args:
            decide: plans a run, from its own hops where it has any.
            planning_s: that planning took the last time.
        """
        self._control, self._run, self._decide = control, run, decide
        self._planning_s, self._missed = planning_s, False
        self._plan = self._last_plan()
        if self._plan is not None:
            self._said = forecast_of(self._plan)

    def check(self, view: RunView, elapsed_s: float, workers: int) -> str | None:
        """Return what to say of a run that was planned anew; None where it was not.

        A run that does other hops than were planned compares with no plan.

        Args:
            view: how far it is.
            elapsed_s: since its first hop began.
        """
        left_s, before = view.seconds_left, self._plan
        is_early = view.hops_done < FEW_HOPS * workers
        if before is None or not left_s or is_early or view.hops_total != before["hops"]:
            return None
        missed_before, self._missed = self._missed, not self._said.holds(elapsed_s + left_s)
        if missed_before or not self._missed or self._planning_s > PLANNING_SHARE * left_s:
            return None
        began, said = perf_counter(), self._said
        self._control.do(lambda c: self._decide(c, self._run.name, workers))
        self._planning_s, self._plan = perf_counter() - began, self._last_plan() or before
        now = forecast_of(self._plan, elapsed_s, 1 - view.hops_done / view.hops_total)
        if self._plan["plan_id"] == before["plan_id"] or said.holds(now.p50_s):
            return None
        self._said = now
        done = f"{view.hops_done:,} of {view.hops_total:,} hops"
        return f"Said: {said}. Then {done} took {seconds_text(elapsed_s)}. Said now: {now}."

    def _last_plan(self) -> Row | None:
        query, run_id = load("runs").find_forecast, self._run.run_id
        rows = self._control.do(lambda c: c.rows(query, run_id=run_id))
        return rows[0] if rows else None
