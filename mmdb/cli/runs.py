"""Commands about runs and their plans: train, explain, calibrate and tensorboard."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from typing import Any

from mmdb.cli.models import Add, WrongUse
from mmdb.cli.options import RUN, WORKERS, database, json_text, opened, say


def add_run_commands(add: Add) -> None:
    """Add the commands to the parser."""
    about = "Train a run, or go on with one that was interrupted."
    command = add("train", _train, about, RUN, database(), WORKERS)
    command.add_argument("--quiet", action="store_true", help="show the end alone")

    about = "Predict what each way of training a run would take."
    command = add("explain", _explain, about, RUN, database())
    command.add_argument("--workers", type=int, help="that train it (any number)")
    about = """of machines that need not exist: '{"nodes": 10, "slots": 4}'"""
    command.add_argument("--cluster", metavar="JSON", help=about)
    command.add_argument("--all", action="store_true", help="show every way, not the best alone")
    command.add_argument("--plot", metavar="FILE", help="also draw it, as .svg or .png")

    about = "Write a run's curves for TensorBoard."
    command = add("tensorboard", _tensorboard, about, RUN, database())
    command.add_argument("folder", help="made if it is not there; brought up to date if it is")


def _train(given: argparse.Namespace) -> int:
    from mmdb.terminal import console, show_leaderboard, training_watch

    if given.json and given.quiet:
        raise WrongUse("--quiet and --json do not go together: --json shows the end alone.")
    with opened(given) as db:
        run = db.run(given.run)
        if given.json:
            print(json_text(asdict(run.train(workers=given.workers))))
            return 0
        with training_watch(quiet=given.quiet) as watch:
            summary = run.train(workers=given.workers, watch=watch)
        show_leaderboard(run.leaderboard())
        console.print(
            f"{summary.hops} hops in {summary.seconds:.1f} s; the best candidate is the model "
            f"{summary.model}@{summary.version}."
        )
    return 0


def _explain(given: argparse.Namespace) -> int:
    from mmdb.terminal.plan import show_plan

    options: dict[str, Any] = {}
    if given.workers is not None:
        options["workers"] = given.workers
    if given.cluster is not None:
        try:
            options["cluster"] = json.loads(given.cluster)
        except ValueError as error:
            raise WrongUse(f"--cluster is not JSON: {error}.") from error
    with opened(given) as db:
        plan = db.run(given.run).explain(options)
    if given.plot is not None:
        plan.plot(given.plot)
    if given.json:
        print(json_text(plan))
    else:
        show_plan(plan, most=len(plan) if given.all else None)
    return 0


def _tensorboard(given: argparse.Namespace) -> int:
    with opened(given) as db:
        candidates = db.run(given.run).tensorboard(given.folder)
    found = {"run": given.run, "folder": given.folder, "candidates": candidates}
    noun = "candidate" if candidates == 1 else "candidates"
    text = f"{candidates} {noun}; to see them: tensorboard --logdir {given.folder}"
    return say(given, found, text)


def add_plan_commands(add: Add) -> None:
    """Add the command to the parser."""
    about = "Measure what this machine and a database cost, for plans."
    command = add("calibrate", _calibrate, about, database())
    about = "seconds to measure for (60)"
    command.add_argument("--budget", type=float, default=60.0, metavar="S", help=about)


def _calibrate(given: argparse.Namespace) -> int:
    from mmdb.terminal import console, show_rows

    with opened(given) as db:
        if given.json:
            print(json_text([dict(row) for row in db.calibrate(given.budget)]))
            return 0
        with console.status(f"Measuring for about {given.budget:g} s; nothing else should be busy"):
            rows = [dict(row) for row in db.calibrate(given.budget)]
    names = ("kind", "size", "size_unit", "value", "unit", "deviation", "samples")
    show_rows("", [{n: row[n] for n in names} for row in rows if row["note"] is None])
    for row in rows:
        if row["note"] is not None:
            subject = f"{row['kind']}: " if row["kind"] else ""
            console.print(f"{subject}{row['note']}", highlight=False, markup=False)
    return 0
