"""Texts that a network goes on with, token by token. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Literal

import torch
from torch import Tensor, nn

from mmdb.errors import Cancelled
from mmdb.train.compute.hop import blaming_the_model
from mmdb.train.values.row_batch import call

#: Why no more tokens came: the network ended the text, as many came as were asked for, the time was
#: over, or the network reads no more.
Stopped = Literal["end", "tokens", "time", "context"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen, and when no more are."""

    max_tokens: int
    temperature: float = 0.0  # 0: the likeliest token; else outputs are divided by it
    top_k: int | None = None  # tokens that are drawn from, the likeliest ones
    seed: int = 0  # of what is drawn
    until: float | None = None  # of `time.monotonic`


def generate(
    module: nn.Module,
    prompt: Sequence[int],
    sampling: Sampling,
    *,
    vocabulary: int,
    ends: Collection[int],
    context: int | None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[list[int], Stopped]:
    """Return the tokens that follow a prompt, the end among them, and why no more do.

    Args:
        module: from ids, int64 (1, n), to outputs, float (1, n, tokens). One of transformers' keeps
            what it has computed of the tokens before.
        prompt: at least one id.
        vocabulary: ids from here on are never chosen.
        ends: ids that end a text.
        context: ids that the module reads at most; None: however many.
        stopped: asked between tokens.
    Raises:
        Cancelled, TrainingFailed
    """
    ids, generator = list(prompt), torch.Generator().manual_seed(sampling.seed)
    reader = _Reader(module.eval())
    while True:
        if stopped():
            raise Cancelled("The text was cancelled.")
        if sampling.until is not None and monotonic() >= sampling.until:
            return ids[len(prompt) :], "time"
        if context is not None and len(ids) >= context:
            return ids[len(prompt) :], "context"
        with torch.no_grad(), blaming_the_model():
            ids.append(choose(reader.outputs(ids)[:vocabulary], sampling, generator))
        if ids[-1] in ends:
            return ids[len(prompt) :], "end"
        if len(ids) - len(prompt) == sampling.max_tokens:
            return ids[len(prompt) :], "tokens"


def choose(outputs: Tensor, sampling: Sampling, generator: torch.Generator) -> int:
    """Return a token by the outputs of all, float (tokens,)."""
    if sampling.temperature == 0:
        return int(outputs.argmax())
    likeliest = outputs.double().topk(min(sampling.top_k or len(outputs), len(outputs)))
    chances = (likeliest.values / sampling.temperature).softmax(0)
    return int(likeliest.indices[torch.multinomial(chances, 1, generator=generator)])


class _Reader:
    """Passes ids through a module, each of them once where the module remembers them."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._step = getattr(module, "go_on", None)  # of networks of transformers
        self._past: object = None
        self._read = 0

    def outputs(self, ids: Sequence[int]) -> Tensor:
        """Return the outputs of the last of some ids, float (tokens,)."""
        if self._step is None:
            return call(self._module, torch.tensor([ids]))[0, -1].float()  # type: ignore[index,no-any-return]
        found, self._past = self._step(torch.tensor([ids[self._read :]]), self._past)
        self._read = len(ids) if self._past is not None else 0
        return found[0, -1].float()  # type: ignore[no-any-return]
