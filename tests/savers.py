"""Processes that save a model and may be killed while they do; each begins with all imported."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import ForkServerProcess

import torch

from mmdb import connect
from mmdb.store.save import save_model

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.savers"])
TENSORS, ROWS, COLUMNS = 24, 400, 1000


def weights(seed: int) -> dict[str, torch.Tensor]:
    """Return a model of 38 MB, and a small tensor."""
    generator = torch.Generator().manual_seed(seed)
    model = {f"{k}.weight": torch.randn(ROWS, COLUMNS, generator=generator) for k in range(TENSORS)}
    return model | {"bias": torch.randn(10, generator=generator)}


def start(url: str, name: str, seed: int) -> tuple[ForkServerProcess, Pipe]:
    """Return a process that is about to save `weights(seed)`, and the pipe that it wrote to.

    It writes "begins", and "saved" when the transaction is over.
    """
    ours, theirs = _CONTEXT.Pipe()
    process = _CONTEXT.Process(target=_save, args=(url, name, seed, theirs), daemon=True)
    process.start()
    return process, ours


def _save(url: str, name: str, seed: int, pipe: Pipe) -> None:
    model = weights(seed)
    with connect(url) as db:
        pipe.send("begins")
        save_model(db.connection, name, model)
        pipe.send("saved")
