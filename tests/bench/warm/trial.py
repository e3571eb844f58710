"""Trainings of a pair's child in files, so that a long measurement can take in another arm."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from tests.bench.journal import Journal
from tests.bench.warm.training import Curve

#: Name of the arm that has no parent.
COLD = "cold"


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One training of a pair's child.

    Attributes:
        child: what tells the child, its data and its training from all others.
        setup_s: what the arm took to set the first weights.
        taken: fraction of the child's parameters that it changed.
        refused: why the arm left the child as it was, "" if it did not.
    """

    pair: str
    child: str
    arm: str
    seed: int
    curve: Curve
    setup_s: float = 0.0
    taken: float = 0.0
    refused: str = ""


class Trials(Journal[Trial]):
    """The trials of a folder. Several processes may write, each to a file of its own.

    Args:
        writer: names the file that this one appends to; one that nothing has without it.
    """

    def __init__(self, folder: Path, writer: str | None = None) -> None:
        file = folder / f"trials-{writer or secrets.token_hex(4)}.jsonl"
        super().__init__(file, "trials-*.jsonl", _trial, lambda t: (t.pair, t.arm, t.seed))
        self._folder = folder

    def find_cold(self, child: str, seed: int) -> Trial | None:
        """Return a child's cold training, of whatever pair."""
        wanted = child, COLD, seed
        return next((t for t in self.records() if (t.child, t.arm, t.seed) == wanted), None)

    def trained(
        self, name: str, build: Callable[[], nn.Module], train: Callable[[nn.Module], None]
    ) -> nn.Module:
        """Return a module as its training left it; what has no file of that name is trained now."""
        module = build()
        file = self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.safetensors"
        if file.exists():
            module.load_state_dict(load_file(file))
        else:
            train(module)
            layout = torch.contiguous_format
            state = module.state_dict()
            part = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
            save_file({k: v.clone(memory_format=layout) for k, v in state.items()}, part)
            part.rename(file)
        return module


def _trial(row: dict[str, object]) -> Trial:
    curve = row.pop("curve")
    assert isinstance(curve, dict)
    made = Curve(
        steps=tuple(curve["steps"]), scores=tuple(curve["scores"]), seconds=curve["seconds"]
    )
    return Trial(curve=made, **row)  # type: ignore[arg-type]
