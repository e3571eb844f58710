"""The plan of a run before it is trained for the first time, which decides the strategy `auto`.

A plan that cannot be made is no reason not to train: it is said, and `auto` is `mop`.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from mmdb.db.connection import Connection, Row
from mmdb.db.install import installed_mode
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import (
    Cancelled,
    ConnectionLost,
    FactoryFailed,
    FunctionFailed,
    InvalidOption,
    MmdbError,
    stops_the_caller,
)
from mmdb.plan.candidate_costs import built_of
from mmdb.plan.candidate_work import is_strange, trace_in_subprocess
from mmdb.plan.estimates import BETWEEN
from mmdb.plan.explain_train import plan
from mmdb.plan.plan_options import MOST_PROBE_S, plan_options
from mmdb.plan.planned_run import PlannedRun, planned_run
from mmdb.plan.step_probe import probing
from mmdb.train.ledger.run_options import SAME, Decide, StrategyChoice, parse_run_options
from mmdb.train.values.runtime import TimeLimit, start_without_signals

#: Seconds that following a run's models may take, and a process or session to load torch before.
LIMIT_S, LOAD_S = 10.0, 60.0
#: Of the seconds that are predicted, what a probe may take; below so many it is not begun.
PROBE_SHARE, LEAST_PROBE_S = 0.05, 4.0
_POLL_S = 0.05
_HERE = ("", "localhost", "127.0.0.1", "::1")

_Q = load("explain")
_T = TypeVar("_T")


def decider(*, say: Callable[[str], None], on_wait: Callable[[], None] = lambda: None) -> Decide:
    """Return what a driver asks before a run is trained for the first time.

    Args:
        say: told why a run is not planned.
        on_wait: called often; may raise to end the call.
    """
    lost: set[str] = set()

    def decide(connection: Connection, name: str, workers: int | None) -> StrategyChoice | None:
        if name in lost:  # the server crashed over it
            say(f"Run {name!r} is not planned: the server crashed while it was.")
            return None
        try:
            return _decision(connection, name, workers, on_wait)
        except Exception as error:
            if isinstance(error, ConnectionLost):
                lost.add(name)
            if stops_the_caller(error):
                raise
            why = error.message if isinstance(error, MmdbError) else repr(error)
            say(f"Run {name!r} is not planned: {why}")
            return None

    return decide


def _decision(
    connection: Connection, name: str, workers: int | None, on_wait: Callable[[], None]
) -> StrategyChoice | None:
    """Keep a plan of a run; return what it says of how to train it."""
    (run,) = connection.rows(_Q.find_run, name=name)
    options = _options(run, workers)
    plan_id = _planned(connection, run, options, on_wait)
    if plan_id is None:
        return _open(options["strategies"]) if run["strategy"] == "auto" else None
    rows = connection.rows(_Q.find_estimates, plan_id=plan_id)
    probe_s = _probe_s(rows) if run["strategy"] == "auto" else 0.0
    if probe_s:
        plan_id = _planned(connection, run, options | {"probe_s": probe_s}, on_wait)
        rows = connection.rows(_Q.find_estimates, plan_id=plan_id)
    taken = next((row for row in rows if row["chosen"]), None)
    if run["strategy"] != "auto":
        return None
    if taken is None:
        reason = next((row["why_not"] for row in rows if row["why_not"]), "nothing was estimated")
        return StrategyChoice(
            strategy="mop", plan_id=plan_id, reason=f"Nothing is possible: {reason}."
        )
    return StrategyChoice(
        strategy=taken["strategy"],
        group=taken["group_size"],
        workers=taken["workers"] if workers is None else None,
        plan_id=plan_id,
        reason=_reason(taken, rows),
    )


def _open(strategies: Sequence[str]) -> StrategyChoice:
    """Return how a run is trained whose frozen layers nobody has looked at."""
    reason = "What its frozen layers share is settled with the first hop: no plan was made."
    return StrategyChoice(strategy="mop" if "mop" in strategies else strategies[0], reason=reason)


def _probe_s(rows: Sequence[Row]) -> float:
    """Return for how many seconds to time steps: where that could change what is taken.

    Ways that train the same thing take their steps alike, so that timing them says little.
    """
    possible = [row for row in rows if row["feasible"]]
    if not possible or rows[0]["assumed"] or rows[0]["measured"] == rows[0]["candidates"]:
        return 0.0  # without a profile more than the steps is not known
    best = possible[0]
    most = best["t_p50"] + (best["t_p90"] - best["t_p10"]) / BETWEEN
    kinds = {row["strategy"] for row in possible if row["t_p50"] <= most}
    budget_s = min(MOST_PROBE_S, PROBE_SHARE * best["t_p50"])
    return budget_s if len(kinds) > 1 and kinds - set(SAME) and budget_s >= LEAST_PROBE_S else 0.0


def _options(run: Row, workers: int | None) -> dict[str, Any]:
    """Return what `explain_train` is asked for."""
    given = parse_run_options(json.loads(run["options"]), run["asked_strategy"])
    is_open = run["strategy"] == "auto"
    options: dict[str, Any] = {"strategies": list(given.strategies), "probe_s": 0}
    if not is_open:
        options["strategies"] = [run["strategy"]]
        workers = workers or run["workers"] or os.cpu_count() or 1
        if run["strategy"] == "data_parallel":
            options["group"] = run["group_size"] or given.group or 2
    return options if workers is None else options | {"workers": workers}


def _planned(
    connection: Connection, run: Row, options: Mapping[str, Any], on_wait: Callable[[], None]
) -> int | None:
    """Plan a run here, or in the server where its code or the machine that computes is there.

    What is not mmdb's own code runs in no driver: it may end the process, or never return.

    Returns:
        The plan's id. None where it is open what candidates with frozen layers share: the first
        hop settles it, and for a plan some session would have to do so while the workers wait.
    """
    has_server = (
        isinstance(connection, PostgresConnection) and installed_mode(connection) == "server"
    )
    try:
        planned = planned_run(connection, run["name"])
        if planned.unsettled:
            return None
        strange = is_strange(planned.architectures, planned.factories)
        if not has_server or not (strange or not _is_near(connection)):
            return _here(connection, planned, strange, options, on_wait)
    except (FactoryFailed, FunctionFailed):
        if not has_server:
            raise
    return _in_server(connection, run, options)


def _here(
    connection: Connection,
    run: PlannedRun,
    strange: bool,
    options: Mapping[str, Any],
    on_wait: Callable[[], None],
) -> int:
    followed = None
    if strange:
        built = built_of(run)
        texts = [text for one in run.candidates for text in built.texts(one.config, one.frozen)]
        texts = list(dict.fromkeys(texts))
        followed = trace_in_subprocess(
            texts, lambda speak: _within(LOAD_S + LIMIT_S, on_wait, speak)
        )
    return plan(
        connection,
        run,
        plan_options(options),
        options,
        compute=partial(_within, LIMIT_S, on_wait),
        followed=followed,
        probing=partial(probing, connection),
    )


def _in_server(connection: Connection, run: Row, options: Mapping[str, Any]) -> int:
    assert isinstance(connection, PostgresConnection)
    limit_s = LOAD_S + LIMIT_S + 2 * options.get("probe_s", 0.0)
    with TimeLimit(limit_s, connection.cancel) as limit:
        try:
            asked = {"run": run["name"], "options": json.dumps(options)}
            connection.rows(load("api").explain_train, **asked)
        except Cancelled as error:
            if limit.passed:
                raise _too_long(limit_s) from error
            raise
    (last,) = connection.rows(_Q.find_last_plan, run_id=run["run_id"])
    return int(last["plan_id"])


def _is_near(connection: Connection) -> bool:
    assert isinstance(connection, PostgresConnection)
    host = connection.raw.info.host
    return host.startswith("/") or host in _HERE


def _within(limit_s: float, on_wait: Callable[[], None], work: Callable[[], _T]) -> _T:
    """Run `work` in a thread; what does not end in time is left behind.

    Raises:
        InvalidOption: it takes too long.
    """
    found: list[_T] = []
    raised: list[BaseException] = []
    done = threading.Event()

    def body() -> None:
        try:
            found.append(work())
        except BaseException as error:
            raised.append(error)
        finally:
            done.set()

    start_without_signals(threading.Thread(target=body, name="mmdb plan", daemon=True))
    end = monotonic() + limit_s
    while not done.wait(_POLL_S):
        on_wait()
        if monotonic() > end:
            raise _too_long(limit_s)
    if raised:
        raise raised[0]
    return found[0]


def _too_long(limit_s: float) -> InvalidOption:
    return InvalidOption(f"following its models takes more than {limit_s:.0f} seconds")


def _reason(taken: Row, rows: list[Row]) -> str:
    """Say why a way is taken: it is the best, or too close to it to be told from it."""
    best = rows[0]
    text = f"{_shown(taken)} is predicted to take {_seconds(taken)}"
    if taken["rank"] == best["rank"]:
        others = (r for r in rows if r["strategy"] != taken["strategy"] and r["feasible"])
        other = next(others, None)
        return f"{text}; {_shown(other)}, {_seconds(other)}." if other else f"{text}."
    return f"{text}; {_shown(best)}, {_seconds(best)}, is no better for sure."


def _seconds(row: Row) -> str:
    """Return a row's seconds; where costs are assumed no one number says them."""
    low, high = f"{row['t_p10']:.3g}", f"{row['t_p90']:.3g}"
    return f"{low} to {high} s" if row["assumed"] else f"{row['t_p50']:.3g} s"


def _shown(row: Row) -> str:
    group = f" in groups of {row['group_size']}" if row["group_size"] > 1 else ""
    return f"{row['strategy']} with {row['workers']} workers{group}"
