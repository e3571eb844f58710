"""Processes that save a model and may be killed while they do; each begins with all imported."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Mapping
from multiprocessing.connection import Connection as Pipe
from multiprocessing.context import ForkServerProcess

import torch

from mmdb import connect
from mmdb.store.models.save import save_model

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.savers"])
TENSORS, ROWS, COLUMNS = 24, 400, 1000


def weights(seed: int) -> dict[str, torch.Tensor]:
    """Return a model of 38 MB, and a small tensor."""
    generator = torch.Generator().manual_seed(seed)
    model = {f"{k}.weight": torch.randn(ROWS, COLUMNS, generator=generator) for k in range(TENSORS)}
    return model | {"bias": torch.randn(10, generator=generator)}


class Stepwise(Mapping[str, torch.Tensor]):
    """A model whose large tensors wait for a word each before their chunks are written."""

    def __init__(self, model: Mapping[str, torch.Tensor], pipe: Pipe) -> None:
        self._model, self._pipe = model, pipe
        self._reads = dict.fromkeys(model, 0)

    def __getitem__(self, path: str) -> torch.Tensor:
        self._reads[path] += 1
        if self._reads[path] == 3 and path != "bias":  # after its hash and its statistics
            self._pipe.send(path)
            self._pipe.recv()
        return self._model[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._model)

    def __len__(self) -> int:
        return len(self._model)


def start(
    url: str, name: str, seed: int, *, stepwise: bool = False
) -> tuple[ForkServerProcess, Pipe]:
    """Return a process that is about to save `weights(seed)`, and the pipe that it wrote to.

    It writes "begins", and "saved" when the transaction is over.

    Args:
        stepwise: it writes each large tensor's path in between, and waits for an answer.
    """
    ours, theirs = _CONTEXT.Pipe()
    given = (url, name, seed, theirs, stepwise)
    process = _CONTEXT.Process(target=_save, args=given, daemon=True)
    process.start()
    return process, ours


def _save(url: str, name: str, seed: int, pipe: Pipe, stepwise: bool) -> None:
    model = weights(seed)
    with connect(url) as db:
        pipe.send("begins")
        save_model(db.connection, name, Stepwise(model, pipe) if stepwise else model)
        pipe.send("saved")
