"""`python -m tests.bench NAME`: experiments that are too long for the test suite."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from mmdb.bench.command import Bench, measure, share_of, show, status
from mmdb.bench.figures import report, write_json
from mmdb.bench.workload import BenchShare
from mmdb.cli.bench import above_0, add_bench_options, at_least
from mmdb.errors import MmdbError
from mmdb.terminal import show_error
from tests.bench.bi.bench import bench_bi
from tests.bench.bi.scan import bench_scan
from tests.bench.feature import bench as feature
from tests.bench.judge import bench as judge
from tests.bench.lineage.bench import bench_lineage
from tests.bench.living import bench as living
from tests.bench.many import bench as many
from tests.bench.match.bench import bench_match
from tests.bench.plan import bench as plan
from tests.bench.pretrained import bench as pretrained
from tests.bench.scale.bench import bench_scale
from tests.bench.schedule.asha import bench_asha
from tests.bench.schedule.bench import bench_schedule
from tests.bench.search.campaigns import ATTACKS, CAMPAIGNS, search
from tests.bench.servers import bench as servers
from tests.bench.tables import bench as tables
from tests.bench.train.concurrency import bench_concurrency
from tests.bench.train.convergence import bench_convergence, plot
from tests.bench.warm import bench as warm


@dataclass(frozen=True, slots=True)
class Experiment:
    """What a name runs: a bench, the share that its options make, and the parts that it has."""

    about: str
    bench: Bench
    share: type[BenchShare] = BenchShare
    parts: Sequence[str] = ()


EXPERIMENTS = {
    "asha": Experiment("successive halving beside the full grid", bench_asha),
    "bi": Experiment("what BI tools ask of the views", bench_bi),
    "concurrency": Experiment("three runs and four readers at once", bench_concurrency),
    "convergence": Experiment("hopping beside model averaging, by epoch", bench_convergence),
    "feature": Experiment(
        "heads on frozen layers", feature.bench_feature, feature.FeatureShare, feature.PARTS
    ),
    "judge": Experiment(
        "what is said of models: whether it is right, and how fast",
        judge.bench_judge,
        judge.JudgeShare,
        judge.PARTS,
    ),
    "living": Experiment(
        "datasets refreshed and killed, models retrained, rows forgotten",
        living.bench_living,
        living.LivingShare,
        living.PARTS,
    ),
    "many": Experiment(
        "stacks of small networks, and a network for each of many groups",
        many.bench_many,
        many.ManyShare,
        many.PARTS,
    ),
    "lineage": Experiment("walks over a graph of 100,000 edges", bench_lineage),
    "match": Experiment("the search for the best parents", bench_match),
    "plan": Experiment(
        "plans beside what became of them", plan.bench_plan, plan.PlanShare, plan.PARTS
    ),
    "pretrained": Experiment(
        "lineage and differences of imported models that nobody said it of",
        pretrained.bench_pretrained,
        pretrained.PretrainedShare,
        pretrained.PARTS,
    ),
    "scale": Experiment("1,000 nodes and 10,000 candidates, simulated", bench_scale),
    "scan": Experiment("a run beside a BI tool that reads the views", bench_scan),
    "schedule": Experiment("simulated makespans against their bounds", bench_schedule),
    "servers": Experiment(
        "sessions that last, poolers, standbys that take over",
        servers.bench_servers,
        servers.ServersShare,
        servers.PARTS,
    ),
    "tables": Experiment(
        "defaults on real tables beside peers",
        tables.bench_tables,
        tables.TablesShare,
        tables.PARTS,
    ),
    "warm": Experiment(
        "warm starts beside cold ones", warm.bench_warm, warm.WarmShare, [*warm.PARTS]
    ),
}
#: Fields of shares that are options.
OPTIONS: dict[str, tuple[Callable[[str], object], str]] = {
    "folder": (Path, "keep trainings here; those that are here are not done again"),
    "pairs": (at_least(1), "the first so many pairs of each part"),
    "peers": (str, "the Python that has the peers (.venv-peers/bin/python)"),
    "processes": (at_least(1), "that train (one per processor)"),
    "repeats": (at_least(1), "runs of each way (3)"),
    "seconds": (
        above_0,
        "of plan: of a run on two workers (12); of feature: of ResNet-18 not shared (80)",
    ),
    "seeds": (at_least(1), "trainings of each pair and arm (5)"),
    "workloads": (at_least(1), "the first so many"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an experiment; return 0 if every bar holds, else 1."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    names = parser.add_subparsers(dest="name", required=True)
    for name, experiment in EXPERIMENTS.items():
        one = names.add_parser(name, help=experiment.about)
        _add_options(one, experiment)
        if name == "convergence":
            one.add_argument("--plot", metavar="FILE", help="draw its curves, as SVG")
    for name, campaigns, what in (
        ("search", CAMPAIGNS, "search for wrong answers with random cases"),
        ("attack", ATTACKS, "attack a server with the rights of a trainer and of a reader"),
    ):
        one = names.add_parser(name, help=what)
        one.set_defaults(run=partial(_search, campaigns))
        one.add_argument("--only", nargs="+", choices=list(campaigns), help="these campaigns alone")
        one.add_argument("--seed", type=int, default=0, help="of the random cases")
        one.add_argument("--cases", type=int, help="of each campaign, in place of its full number")
        one.add_argument("--json", metavar="FILE", help="write the figures here")
    given = parser.parse_args(arguments)
    try:
        return int(given.run(given))
    except MmdbError as error:
        show_error(error)
        return 1


def _add_options(parser: argparse.ArgumentParser, experiment: Experiment) -> None:
    parser.set_defaults(run=partial(_measure, experiment))
    add_bench_options(parser)
    for field in fields(experiment.share):
        if field.name in OPTIONS:
            kind, what = OPTIONS[field.name]
            parser.add_argument(f"--{field.name}", type=kind, help=what)
    if experiment.parts:
        what = "measure this part, may be given again; all if left out"
        parser.add_argument("--only", choices=experiment.parts, action="append", help=what)


def _measure(experiment: Experiment, given: argparse.Namespace) -> int:
    options = {f.name: getattr(given, f.name) for f in fields(experiment.share)}
    share = share_of(experiment.share, options)
    figures = measure(given.name, experiment.bench, share, given.database, given.json)
    if getattr(given, "plot", None):
        plot(figures, given.plot)
    return status(figures)


def _search(campaigns: dict[str, Any], given: argparse.Namespace) -> int:
    figures = search(given.only or list(campaigns), seed=given.seed, cases=given.cases)
    show(f"bench {given.name}", figures)
    if given.json:
        write_json(given.json, report(given.name, figures))
    return status(figures)


if __name__ == "__main__":
    sys.exit(main())
