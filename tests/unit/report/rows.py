"""Rows of a run as the views have them, made up, for reports."""

from __future__ import annotations

import random
from typing import Any

from mmdb.plan import CandidateCost, Cluster, ClusterNode, CostedWorkload, explain
from mmdb.plan.cost import PHASES
from mmdb.plan.explain_train import row_of
from mmdb.plan.step import LayerCost
from mmdb.report.facts import ModelFacts, RunFacts
from mmdb.report.lineage_graph import LineageEdge, graph_of

BEGIN = 1_790_000_000.0
#: A name that would end whatever it stands in, if it were not escaped.
NASTY = "</script><script>alert(1)</script>\"' & 🚀\u2028"


#: What evaluate and importance leave for a page.
FIGURES: dict[str, Any] = {
    "errors": {
        "of": NASTY,
        "row_count": 1234,
        "confusion": {"classes": ["no", NASTY], "rows": [[4.0, 1.0], [0.0, 5.0]]},
        "curves": [
            {
                "class": NASTY,
                "roc": [[0.0, 0.0], [0.0, 0.75], [1.0, 1.0]],
                "recall": [[0.5, 1.0], [1.0, 0.5]],
                "calibration": [[0.25, 0.125, 8], [0.75, 1.0, 2]],
            }
        ],
        "residuals": [[-1.0, 0.0, 3], [0.0, 1.0, 2]],
        "worst": [{"key": "7", "label": "no", "prediction": NASTY, "probability": 0.0625}],
    },
    "importance": {
        "importance": [
            {
                "column_name": NASTY, "tables": "public.visit", "metric_name": "accuracy",
                "importance": 0.375, "low": 0.25, "high": 0.5,
            }
        ]
    },
}  # fmt: skip


def plan_rows(slots: int = 4, candidates: int = 8) -> list[dict[str, Any]]:
    """Return a plan as the view plan_overview has it."""
    cost = CandidateCost(
        step_s=0.002,
        row_s=2e-5,
        hop_s=0.01,
        state_bytes=4e6,
        gradient_bytes=4e6,
        validation_row_s=1e-5,
        layers=(LayerCost(1e-6, 100, 1e5),) * 4,
    )
    load = CostedWorkload(
        candidates=(cost,) * candidates, rows=(5000,) * 4, validation_rows=2000, epochs=2
    )
    estimates = explain(load, Cluster(nodes=(ClusterNode(slots=slots, memory_bytes=16e9),)))
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
        "models": [model_row(name, 1)],
        "board": board,
        "epochs": curves,
        "hops": hops,
        "plan": plan,
        "outcome": outcome_of(plan),
        "lineage": graph_of(edges_of(name), f"run:{name}"),
    }
    return RunFacts(**(whole | given))


def model_row(name: str, version: int) -> dict[str, Any]:
    """Return a model as model_overview has it."""
    return {
        "model": name,
        "version": version,
        "candidate_id": 100,
        "epoch": 1,
        "members": None,
        "approach": "snapshot" if version == 1 else "update",
        "byte_count": 4_000_000,
        "stored_bytes": 2_000_000 // version,
        "shared_bytes": 1_000_000 * (version - 1),
        "encoded_away_bytes": 4_000_000 - 2_000_000 // version - 1_000_000 * (version - 1),
        "created": BEGIN,
    }


GROUPS = [
    {
        "code": code,
        "column_name": "shop",
        "group_value": (NASTY, None, "7")[code],
        "train_rows": 30 + code,
        "train_loss": 0.5,
        "held_out_rows": 9,
        "held_out_loss": 0.75,
        "metric": "rmse",
        "value": 1.5 - code / 4,
        "groups": 2500,
        "measured": 2400,
        "least": 0.125,
        "low": 0.25,
        "middle": 0.375,
        "high": 0.5,
        "most": 1.5,
    }
    for code in range(3)
]


def model_facts(name: str = "churn", **given: Any) -> ModelFacts:
    """Return what is read of the second version of a model; `given` replaces some of it."""
    trained = facts(candidates=2, epochs=2, workers=1, name="search")
    versions = [
        {**model_row(name, version), "parent": parent, "run": "search", "dropped": None}
        for version, parent in ((1, None), (2, f"{name}@1"))
    ]
    model = versions[1] | {
        "dataset": "digits",
        "architecture": '{"factory":"mlp","arguments":{"hidden":[8]}}',
        "parameters": 1000,
        "reason": None,
    }
    tensor = {"kind": "parameter", "tied_to": None, "dtype": "float32", "shape": [10, 100],
              "byte_count": 4000, "chunks": 1, "is_difference": False, "minimum": -1.0,
              "maximum": 1.0, "mean": 0.0, "deviation": 0.5, "tensor_id": 1}  # fmt: skip
    whole: dict[str, Any] = {
        "model": model,
        "versions": versions,
        "metrics": [
            {"version": v, "metric": "accuracy", "dataset": "", "value": 0.8 + v / 100}
            for v in (1, 2)
        ],
        "aliases": [{"alias": "best", "version": 2, "author": "ann", "happened": BEGIN}],
        "tags": [{"key": "stage", "value": NASTY}],
        "notes": [{"note": NASTY, "author": "ann", "created": BEGIN}],
        "tensors": [
            {**tensor, "ordinal": k, "path": f"layer{k}.weight", "stored_bytes": 100 * k or None}
            for k in range(30)
        ],
        "storage": model_row(name, 2),
        "origin": {"kind": "import", "source": "/data/churn.onnx", "format": "onnx"},
        "evaluations": [
            {
                "dataset": None,
                "slice": None,
                "query": NASTY,
                "metric": "accuracy",
                "by_name": "place",
                "by_value": None,
                "row_count": 5,
                "value": 0.5,
                "low": 0.25,
                "high": 0.75,
                "author": "ann",
                "evaluated": BEGIN,
            }
        ],
        "figures": FIGURES,
        "groups": GROUPS,
        "predictions": [
            {
                "schema_name": "public",
                "table_name": NASTY,
                "row_count": 5,
                "seconds": 0.5,
                "author": "ann",
                "predicted": BEGIN,
            }
        ],
        "epochs": [{**row, "metric": "accuracy"} for row in trained.epochs[:2]],
        "hops": [hop for hop in trained.hops if hop["candidate_id"] == 100],
        "transfers": [{"parent": "base@1", "similarity": 0.9, "coverage": 0.5}],
        "outcome": trained.outcome,
        "lineage": graph_of(edges_of(name), f"model:{name}@2"),
    }
    return ModelFacts(**(whole | given))


def edges_of(name: str) -> list[LineageEdge]:
    """Return the lineage of a model that is the second epoch of candidate 100, fine-tuned after."""
    found = [(f"column:public.orders.c{k}", "dataset:digits", f"c{k}") for k in range(6)]
    found += [("column:public.customers.id", "dataset:digits", "filter")]
    for part in (1, 2, 3):
        found.append(("dataset:digits", f"partition:{part}", ""))
        for candidate in (100, 101):
            found.append((f"candidate:{candidate}", f"hop:{candidate}/0/{part}", ""))
            for epoch in (0, 1):
                hop = f"hop:{candidate}/{epoch}/{part}"
                found.append((f"partition:{part}", hop, ""))
                found.append((hop, f"checkpoint:{candidate}/{epoch}", ""))
                if epoch:
                    found.append((f"checkpoint:{candidate}/{epoch - 1}", hop, ""))
    found += [(f"run:{name}", f"candidate:{candidate}", "") for candidate in (100, 101)]
    return [
        *found,
        ("checkpoint:100/1", f"model:{name}@1", ""),
        (f"model:{name}@1", f"model:{name}@2", "fine-tune"),
        (f"model:{name}@2", "table:public.predicted", "predictions"),
        ("table:public.predicted", "dataset:again", ""),
        ("file:/data/base.onnx", "model:base@1", "import"),
        ("model:base@1", "candidate:101", "warm start"),
    ]


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
