"""A character-level language model over the sources of Python's standard library.

The model is GPT-2's in small: Radford et al. 2019, "Language Models are Unsupervised Multitask
Learners", section 2.3 (pre-normalisation, learned positions, GELU).
"""

from __future__ import annotations

import string
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

#: Character 0 stands for all that are not listed.
ALPHABET = "\n" + string.printable[:95]
#: An alphabet with fewer characters, in another order, for parents of another vocabulary.
FOLDED = " \n" + string.punctuation[::-1] + string.ascii_lowercase[::-1]
SKIPPED = {"site-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__"}

Part = Literal["parent", "child", "held_out"]
#: Which part each file goes to, in turns.
TURNS: tuple[Part, ...] = ("parent", "child", "parent", "child", "held_out")


@dataclass(frozen=True, slots=True)
class Shape:
    """Blocks, channels, heads and characters at once of a model."""

    layers: int
    width: int
    heads: int
    context: int = 64
    tied: bool = False

    def __str__(self) -> str:
        return f"{self.layers} layers, width {self.width}, {self.heads} heads"


def network(shape: Shape, characters: int = len(ALPHABET) + 1) -> nn.Module:
    """Return the module: int64 (n, T <= context) -> logits (n, T, characters)."""
    return Gpt(shape, characters)


class Gpt(nn.Module):
    """A decoder-only transformer."""

    places: Tensor

    def __init__(self, shape: Shape, characters: int) -> None:
        super().__init__()
        self.token = nn.Embedding(characters, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.register_buffer("places", torch.arange(shape.context), persistent=False)
        self.blocks = nn.ModuleList(Block(shape.width, shape.heads) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, characters, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        if shape.tied:
            self.head.weight = self.token.weight

    def forward(self, x: Tensor) -> Tensor:
        h = self.token(x) + self.position(self.places[: x.shape[1]])  # (n, T, width)
        for block in self.blocks:
            h = block(h)
        out: Tensor = self.head(self.norm(h))
        return out


class Block(nn.Module):
    """Attention, then a layer of 4 times the width, each added to its input."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.down(F.gelu(self.up(self.norm2(x))))
        return out


class Attention(nn.Module):
    """Causal self-attention with separate projections: (n, T, width) -> (n, T, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        n, t, width = x.shape
        q, k, v = (
            layer(x).view(n, t, self.heads, -1).transpose(1, 2)  # (n, heads, T, width / heads)
            for layer in (self.query, self.key, self.value)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        out: Tensor = self.out(y.transpose(1, 2).reshape(n, t, width))
        return out


def corpus(
    budget_bytes: int, alphabet: str = ALPHABET, folder: Path | None = None
) -> dict[Part, Tensor]:
    """Return the characters of each part, uint8 (n,), from whole files in the order of their names.

    Args:
        budget_bytes: the file that passes it is the last one.
        folder: of the sources; the running Python's standard library by default.
    """
    folder = folder or Path(sysconfig.get_paths()["stdlib"])
    codes = _codes(alphabet)
    parts: dict[Part, list[np.ndarray]] = {part: [] for part in TURNS}
    left = budget_bytes
    for ordinal, file in enumerate(_sources(folder)):
        raw = np.frombuffer(file.read_bytes(), np.uint8)
        parts[TURNS[ordinal % len(TURNS)]].append(codes[raw])
        left -= len(raw)
        if left <= 0:
            break
    return {part: torch.from_numpy(np.concatenate(texts)) for part, texts in parts.items()}


def _sources(folder: Path) -> Iterator[Path]:
    files = [file.relative_to(folder) for file in folder.rglob("*.py")]
    for file in sorted(files, key=lambda file: file.as_posix()):
        if not SKIPPED & set(file.parts):
            yield folder / file


def _codes(alphabet: str) -> np.ndarray:
    """Return the code of each byte; letters that the alphabet lacks take their other case's."""
    codes = np.zeros(256, np.uint8)
    for code, letter in enumerate(alphabet, start=1):
        codes[ord(letter)] = code
        if letter.swapcase() not in alphabet:
            codes[ord(letter.swapcase())] = code
    return codes
