"""Experiment `match` with architectures of pytorchcv, timm and transformers in the first zoo.

    python -m tests.bench.match.real --outlines FILE [--models 2500] [--collect] [--json FILE]

What is in the file is not extracted again; a half-done file goes on. Extraction takes about a
quarter of an hour; `--collect` stops after it. The libraries are needed only for what the file
lacks.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import torch

from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.op_contraction import skeleton_of
from mmdb.graph.ops.skeleton import LayerSkeleton, SkeletonLayer
from tests.bench.match.extraction import time_limit
from tests.bench.match.zoo_models import Architecture, architectures, quiet

LIBRARIES = ("pytorchcv", "timm", "transformers")
#: Of a model whose weights are allocated: some have 20 GB of them.
MEMORY_BYTES = 12 << 30


def main() -> None:
    """Extract what the file lacks, then measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--outlines", type=Path, required=True)
    parser.add_argument("--models", type=int, default=2500)
    parser.add_argument("--library", choices=LIBRARIES, action="append")
    parser.add_argument("--collect", action="store_true", help="do not measure")
    parser.add_argument("--json", help="also write the figures to this file")
    given = parser.parse_args()
    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    _extract(given.outlines, given.library or LIBRARIES, given.models)
    found = list(distinct(given.outlines))[: given.models]
    print(f"{len(found)} different outlines")
    if not given.collect:
        _measure(found, given.json)


def _measure(outlines: list[LayerSkeleton], json_file: str | None) -> None:
    # imported here: where the libraries are installed, mmdb's other requirements need not be
    from mmdb.bench.command import show
    from mmdb.bench.figures import report, write_json
    from mmdb.bench.workload import FULL
    from tests.bench.match.bench import bench_match

    figures = list(bench_match([], FULL, lambda: outlines))
    show("bench match, public architectures", figures)
    if json_file:
        write_json(json_file, report("match", figures))


def distinct(file: Path) -> Iterator[LayerSkeleton]:
    """Yield the outlines of a file that differ in more than paths."""
    seen: set[object] = set()
    for row in _rows(file):
        if row["outline"] is None:
            continue
        outline = _outline(row["outline"])
        layers = ((x.kind, x.shape, x.groups, x.parameters) for x in outline.layers)
        content = (tuple(layers), outline.inputs)
        if content not in seen:
            seen.add(content)
            yield outline


def _extract(file: Path, libraries: tuple[str, ...], models: int) -> None:
    """Append a row for each architecture, in a random order, until there are enough outlines."""
    done = {row["name"] for row in _rows(file)}
    count = sum(1 for _ in distinct(file))
    if count >= models:
        return
    drawn = [(library, one) for library in libraries for one in architectures(library)]
    random.Random(0).shuffle(drawn)
    with file.open("a") as rows:
        for library, architecture in drawn:
            name = f"{library}: {architecture.name}"
            if count >= models + models // 10:  # some will be equal
                return
            if name not in done:
                outline = _outline_of(architecture)
                count += outline is not None
                made = None if outline is None else _nameless(outline)
                rows.write(json.dumps({"name": name, "outline": made}) + "\n")
                rows.flush()


def _outline_of(architecture: Architecture) -> LayerSkeleton | None:
    """Return the outline, None where the library or the extraction fails or takes too long."""
    for device in ("meta", "cpu"):  # some constructors read their weights
        try:
            with time_limit(), quiet(), torch.device(device):
                return skeleton_of(capture(architecture.build(False)))
        except Exception:  # the library's code, or a model that does not fit
            continue
    return None


def _rows(file: Path) -> Iterator[dict[str, object]]:
    if file.exists():
        whole, _, _ = file.read_text().rpartition("\n")  # a killed process leaves half a line
        yield from map(json.loads, whole.splitlines())


def _nameless(outline: LayerSkeleton) -> dict[str, object]:
    """Return what matching reads of an outline."""
    layers = [(x.kind, x.shape, x.groups, x.parameters) for x in outline.layers]
    return {"layers": layers, "inputs": outline.inputs}


def _outline(made: object) -> LayerSkeleton:
    assert isinstance(made, dict)
    layers = (
        SkeletonLayer(
            ordinal=k, kind=kind, shape=tuple(shape), groups=groups, parameters=parameters
        )
        for k, (kind, shape, groups, parameters) in enumerate(made["layers"])
    )
    return LayerSkeleton(layers=tuple(layers), inputs=tuple(map(tuple, made["inputs"])))


if __name__ == "__main__":
    main()
