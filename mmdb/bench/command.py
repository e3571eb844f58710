"""One bench over one or several databases: table on the terminal, JSON on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from mmdb.api import Database
from mmdb.bench.asha import bench_asha
from mmdb.bench.bi import bench_bi
from mmdb.bench.bi_scan import bench_scan
from mmdb.bench.concurrency import bench_concurrency
from mmdb.bench.convergence import bench_convergence, plot
from mmdb.bench.feature.bench import FeatureShare, bench_feature
from mmdb.bench.figures import Figure, report, write_json
from mmdb.bench.hop import bench_hop
from mmdb.bench.ingest import bench_ingest
from mmdb.bench.lineage import bench_lineage
from mmdb.bench.load import Load, bench_load
from mmdb.bench.match import bench_match
from mmdb.bench.plan.bench import PlanShare, bench_plan
from mmdb.bench.scale import bench_scale
from mmdb.bench.schedule import bench_schedule
from mmdb.bench.share import Share
from mmdb.bench.store import bench_store
from mmdb.bench.train import bench_train
from mmdb.bench.warm.bench import WarmShare, bench_warm
from mmdb.bench.workload import bench_database
from mmdb.terminal import console, show_rows

#: A bench is given its share: one of SHARES, or `Share`.
BENCHES: dict[str, Callable[[list[Database], Any], Iterable[Figure]]] = {
    "asha": bench_asha,
    "bi": bench_bi,
    "concurrency": bench_concurrency,
    "convergence": bench_convergence,
    "feature": bench_feature,
    "hop": bench_hop,
    "ingest": bench_ingest,
    "lineage": bench_lineage,
    "load": bench_load,
    "match": bench_match,
    "plan": bench_plan,
    "scale": bench_scale,
    "scan": bench_scan,
    "schedule": bench_schedule,
    "store": bench_store,
    "train": bench_train,
    "warm": bench_warm,
}
SHARES: dict[str, type[Share]] = {
    "feature": FeatureShare,
    "load": Load,
    "plan": PlanShare,
    "warm": WarmShare,
}


def run_bench(
    name: str,
    urls: list[str] | None,
    json_file: str | None,
    plot_file: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> int:
    """Run a bench and print its figures; return 0 if every bar holds, else 1.

    Args:
        plot_file: where the bench `convergence` draws its curves, as SVG.
        options: fields of the bench's share; those that are None are left out. Below its full size
            no figure has a bar.
    """
    given = {option: value for option, value in (options or {}).items() if value is not None}
    share = SHARES.get(name, Share)(**given)
    figures: list[Figure] = []
    try:
        with ExitStack() as stack, console.status(f"measuring {name}"):
            chosen: list[str | None] = [*urls] if urls else [None]
            databases = [stack.enter_context(bench_database(url)) for url in chosen]
            for figure in BENCHES[name](databases, share):  # kept before what it took is cleaned up
                figures.append(figure if share.is_full else replace(figure, bar="", holds=None))
                if json_file:
                    write_json(json_file, report(name, figures, share.share))
    finally:
        show(f"bench {name}", figures)
    if plot_file:
        plot(figures, plot_file)
    return 0 if all(figure.holds is not False for figure in figures) else 1


def show(title: str, figures: Sequence[Figure]) -> None:
    """Print figures beside their bars."""
    show_rows(title, [_row(figure) for figure in figures], folded="figure")


def _row(figure: Figure) -> dict[str, object]:
    holds = {True: "holds", False: "MISSED", None: ""}[figure.holds]
    return {
        "figure": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "bar": figure.bar,
        "": holds,
    }
