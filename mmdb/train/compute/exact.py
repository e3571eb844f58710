"""Deterministic computing: torch's switches, threads and generators, borrowed for a hop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mmdb.train.compute.compiler import compute_deterministically
from mmdb.train.compute.device import CPU, described

#: torch makes this switch at run time, where no type checker sees it.
_FILL = "fill_uninitialized_memory"


def environment(device: torch.device = CPU) -> str:
    """Return what the bits of a hop depend on besides its inputs."""
    capability = torch.backends.cpu.get_cpu_capability()
    here = f"torch {torch.__version__}, {capability}, {torch.get_num_threads()} thread(s)"
    return here if device == CPU else f"{here}, {described(device)}"


@contextmanager
def recording() -> Iterator[None]:
    """Record gradients inside the block: a DuckDB file trains in its caller's thread."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


@contextmanager
def exact(seed: int, threads: int = 1, device: torch.device = CPU) -> Iterator[None]:
    """Inside the block torch is deterministic, uses `threads` threads and draws from `seed`.

    Draws are from the generators of the CPU and of `device`. Gradients are recorded, whatever the
    caller has set.
    """
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.get_num_threads(),
        torch.get_rng_state(),
        getattr(torch.utils.deterministic, _FILL),
    )
    compute_deterministically(True)
    # Deterministic results do not read what they have not written; filling costs time.
    setattr(torch.utils.deterministic, _FILL, False)
    if before[1] != threads:
        torch.set_num_threads(threads)
    torch.default_generator.manual_seed(seed)
    try:
        with recording():
            if device.type == "cuda":
                with _exact_cuda(seed, device):
                    yield
            else:
                yield
    finally:
        compute_deterministically(before[0])
        if before[1] != threads:
            torch.set_num_threads(before[1])
        torch.set_rng_state(before[2])
        setattr(torch.utils.deterministic, _FILL, before[3])


@contextmanager
def _exact_cuda(seed: int, device: torch.device) -> Iterator[None]:
    """Seed one GPU's generator, and let cuDNN choose its algorithms without timing them."""
    state = torch.cuda.get_rng_state(device)
    benchmark = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    with torch.cuda.device(device):
        torch.cuda.manual_seed(seed)
        try:
            yield
        finally:
            torch.backends.cudnn.benchmark = benchmark
            torch.cuda.set_rng_state(state, device)
