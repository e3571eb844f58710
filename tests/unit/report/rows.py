"""Rows of a run as the views have them, made up, for reports."""

from __future__ import annotations

import random
from typing import Any

from mmdb.plan import CandidateCost, Cluster, Load, Node, explain
from mmdb.plan.cost import PHASES, Layer
from mmdb.plan.run.store import row_of
from mmdb.report.run.reading import RunFacts

BEGIN = 1_790_000_000.0
#: A name that would end whatever it stands in, if it were not escaped.
NASTY = "</script><script>alert(1)</script>\"' & 🚀\u2028"


def plan_rows(slots: int = 4, candidates: int = 8) -> list[dict[str, Any]]:
    """Return a plan as the view plan_overview has it."""
    cost = CandidateCost(
        step_s=0.002,
        row_s=2e-5,
        hop_s=0.01,
        state_bytes=4e6,
        gradient_bytes=4e6,
        validation_row_s=1e-5,
        layers=(Layer(1e-6, 100, 1e5),) * 4,
    )
    load = Load(candidates=(cost,) * candidates, rows=(5000,) * 4, validation_rows=2000, epochs=2)
    estimates = explain(load, Cluster(nodes=(Node(slots=slots, memory_bytes=16e9),)))
    rows = [row_of(one, rank, chosen=False) for rank, one in enumerate(estimates, 1)]
    mop = [row for row in rows if row["strategy"] == "mop"]
    max(mop, key=lambda row: row["workers"])["chosen"] = True
    common = {"plan_id": 1, "planned": BEGIN, "simulated": False, "assumed": True, "notes": "[]"}
    return [row | common for row in rows]


def outcome_of(plan: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what a run took that was trained as planned, as plan_outcome has it."""
    (row,) = (row for row in plan if row["chosen"])
    took = {f"actual_{phase}_s": 1.1 * row[f"{phase}_s"] for phase in PHASES}
    return row | took | {"actual_s": 1.1 * row["t_p50"], "is_comparable": True}


def facts(
    *, candidates: int = 12, epochs: int = 3, workers: int = 2, name: str = "search", **given: Any
) -> RunFacts:
    """Return what is read of a trained run; `given` replaces some of it."""
    draw = random.Random(0)
    board: list[dict[str, Any]] = [
        {
            "rank": place + 1,
            "candidate_id": 100 + place,
            "config": {"lr": draw.uniform(0, 0.1), "optimizer": draw.choice(["adam", NASTY])},
            "status": "trained",
            "objective": 1 - place / candidates,
            "validation_loss": 0.1,
            "training_loss": 0.1,
            "best_epoch": epochs - 1,
            "epochs": epochs,
            "hops": 4 * epochs,
            "total_s": 4.0 * epochs,
            "parent": None,
            "error": None,
        }
        for place in range(candidates)
    ]
    curves = [
        {"candidate_id": row["candidate_id"], "epoch": e, "training_loss": 1 / (e + 1),
         "objective": row["objective"] * (e + 1) / epochs}
        for row in board for e in range(epochs)
    ]  # fmt: skip
    hops = hops_of(candidates, epochs, workers)
    run = {
        "run": name,
        "status": "finished",
        "dataset": "digits",
        "strategy": "mop",
        "metric": "accuracy",
        "epochs": epochs,
        "candidates": candidates,
        "failed": 0,
        "stopped": 0,
        "hops_done": len(hops),
        "hops_total": len(hops),
        "best_candidate_id": 100,
        "best_value": 1.0,
        "created": BEGIN - 60,
        "started": BEGIN,
        "ended": max(hop["begun"] + hop["total_s"] for hop in hops),
    }
    plan = plan_rows()
    whole: dict[str, Any] = {
        "run": run,
        "models": [{"model": name, "version": 1}],
        "board": board,
        "epochs": curves,
        "hops": hops,
        "plan": plan,
        "outcome": outcome_of(plan),
    }
    return RunFacts(**(whole | given))


def hops_of(candidates: int, epochs: int, workers: int, parts: int = 4) -> list[dict[str, Any]]:
    """Return hops of a second, candidates dealt out to workers, a validation after each epoch."""
    found = []
    now = [BEGIN] * workers
    for epoch in range(epochs):
        for candidate in range(candidates):
            worker = candidate % workers
            for part in range(parts + 1):
                validates = part == parts
                seconds = 0.2 if validates else 1.0
                found.append(
                    {
                        "worker": f"worker {worker}",
                        "node": "here",
                        "candidate_id": 100 + candidate,
                        "epoch": epoch,
                        "role": "validation" if validates else "train",
                        "begun": now[worker],
                        "read_s": 0.1 if epoch == 0 else 0.0,
                        "load_s": 0.01,
                        "compute_s": seconds * 0.8,
                        "total_s": seconds,
                    }
                )
                now[worker] += seconds + 0.05
    return sorted(found, key=lambda hop: (str(hop["worker"]), float(str(hop["begun"]))))
