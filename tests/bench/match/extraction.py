"""Which share of public architectures is extracted, and how fast.

python -m tests.bench.match.extraction --library timm --models 100 --seed 0

The library must be installed beside torch. Models are drawn at random by the seed; one that the
library itself cannot build from its defaults is replaced by the next one drawn, and counted.
"""

from __future__ import annotations

import argparse
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median

import torch
from torch import nn

from mmdb.graph.ops.capture import capture
from mmdb.graph.ops.op_contraction import skeleton_of
from mmdb.graph.ops.op_graph import CannotTrace, OpGraph
from mmdb.graph.ops.skeleton import LayerSkeleton
from tests.bench.match.zoo_models import Architecture, architectures, quiet

#: Shares of models that are to be extracted; all of their parameters; seconds at the median.
BARS = {"pytorchcv": 0.98, "timm": 0.98, "transformers": 0.90}
MEDIAN_S = 0.5
_LIMIT_S = 120  # of one model


@dataclass(frozen=True, slots=True, kw_only=True)
class Extraction:
    """What came of one model; `failure` is empty where it was extracted."""

    name: str
    seconds: float = 0.0
    cpu_s: float = 0.0
    operations: int = 0
    layers: int = 0
    attributed: float = 0.0
    reduced: bool = False
    failure: str = ""
    wants_values: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--library", choices=BARS, required=True)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a model's name, in place of a draw")
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = architectures(given.library)
    if given.only:
        found = [one for one in found if one.name == given.only]
    else:
        random.Random(given.seed).shuffle(found)
    results: list[Extraction] = []
    unbuilt: list[str] = []
    for architecture in found:
        if len(results) == given.models:
            break
        try:
            results.append(extract(architecture))
        except NotBuilt as exc:
            unbuilt.append(f"{architecture.name}: {exc}")
            continue
        print(line(results[-1]), flush=True)
    report(given.library, results, unbuilt)


class NotBuilt(Exception):
    """The library cannot make the model from its defaults."""


def extract(architecture: Architecture) -> Extraction:
    """Build and extract one model; one that has to run with values, in a smaller size."""
    module = _build(architecture, reduced=False)
    first = _extract(architecture.name, module)
    if not first.wants_values:
        return first
    try:
        module = _build(architecture, reduced=True)
    except NotBuilt:
        return first
    return _extract(architecture.name, module, reduced=True)


def _build(architecture: Architecture, *, reduced: bool) -> nn.Module:
    try:
        with time_limit():
            module = architecture.build(reduced)
            if type(module).forward is nn.Module.forward:
                raise TypeError("it has no forward")
            return module
    except Exception as exc:  # the library's code
        raise NotBuilt(f"{type(exc).__name__}: {exc}"[:200].replace("\n", " ")) from exc


def _extract(name: str, module: nn.Module, *, reduced: bool = False) -> Extraction:
    start, cpu = time.perf_counter(), time.process_time()
    try:
        with time_limit(), quiet():
            flow = capture(module)
            outline = skeleton_of(flow)
    except (CannotTrace, TimeoutError) as exc:
        return Extraction(
            name=name,
            reduced=reduced,
            failure=f"{type(exc).__name__}: {exc}",
            wants_values=isinstance(exc, CannotTrace) and exc.wants_values,
        )
    return Extraction(
        name=name,
        seconds=time.perf_counter() - start,
        cpu_s=time.process_time() - cpu,
        operations=len(flow.operations),
        layers=len(outline.layers),
        attributed=attributed(module, flow, outline),
        reduced=reduced,
    )


def attributed(module: nn.Module, flow: OpGraph, outline: LayerSkeleton) -> float:
    """Return the share of the module's parameters, by elements, that layers hold."""
    held = {path for layer in outline.layers for _, path in layer.tensors}
    sizes = {path: one.numel() for path, one in module.named_parameters(remove_duplicate=False)}
    total = sum(count for path, count in sizes.items() if path not in flow.ties)
    mine = sum(n for path, n in sizes.items() if path not in flow.ties and path in held)
    if total and outline.parameters != total:
        return outline.parameters / total
    return mine / total if total else 1.0


@contextmanager
def time_limit() -> Iterator[None]:
    """Raise TimeoutError in the middle of what takes longer than a model may."""

    def ring(*_: object) -> None:
        raise TimeoutError(f"more than {_LIMIT_S} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(_LIMIT_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def line(one: Extraction) -> str:
    """Return one model's result as a line."""
    size = f"{one.operations:6d} ops {one.layers:5d} layers {one.attributed:7.2%}"
    what = one.failure or f"{size} {one.seconds:6.2f} s {one.cpu_s:6.2f} s"
    return f"{one.name:50s} {what}{'  (reduced)' if one.reduced else ''}"


def report(library: str, results: list[Extraction], unbuilt: list[str]) -> None:
    """Print the shares beside their bars, and each failure with its reason."""
    done = [one for one in results if not one.failure]
    whole = [one for one in done if one.attributed == 1.0]
    if not done:
        print("nothing was extracted")
        return
    seconds = sorted(one.seconds for one in done)
    print(f"\n{library}: {len(results)} models, {len(unbuilt)} more could not be built")
    print(f"extracted   {len(done) / len(results):7.1%}  (bar {BARS[library]:.0%})")
    print(f"attributed  {len(whole) / len(done):7.1%}  of them with all parameters (bar 100%)")
    cpu = median(one.cpu_s for one in done)
    print(f"median      {median(seconds):7.3f} s  (bar {MEDIAN_S} s), longest {seconds[-1]:.1f} s")
    print(f"            {cpu:7.3f} s of the processor, of which others may have had a part")
    for one in results:
        if one.failure or one.attributed < 1.0:
            print(f"  {line(one)}")
    for text in unbuilt:
        print(f"  not built: {text}")


if __name__ == "__main__":
    main()
