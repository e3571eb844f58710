"""Texts that saved models go on with: `generate` of SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from torch import nn

from mmdb.arguments import is_number, is_whole
from mmdb.data import functions
from mmdb.data.dataset import find_decoding
from mmdb.db.queries import load
from mmdb.errors import InvalidInput, InvalidOption
from mmdb.messages import show
from mmdb.server.backend import Backend
from mmdb.server.predictor import kept_model
from mmdb.server.row_limit import row_count
from mmdb.store.files.exchange import TOKENIZER_TAG
from mmdb.store.models.model_rows import SavedModel, model_of
from mmdb.train.compute.generation import Sampling
from mmdb.train.compute.generation import generate as follow

#: Tokens that one call returns at most.
MAX_TOKENS = 65_536


@dataclass(frozen=True, slots=True)
class Writer:
    """A model that goes on with texts, with what makes tokens of them."""

    model: SavedModel
    module: nn.Module
    codec: functions.TextCodec
    ends: frozenset[int]
    context: int | None  # tokens that the network reads; None: however many

    def text_after(self, prompt: Sequence[int], ids: Sequence[int]) -> str:
        """Return the text of ids as it goes on behind that of a prompt."""
        decode: Callable[[Sequence[int]], str] = self.codec.decode
        whole, before = decode([*prompt, *ids]), decode(prompt)
        found = whole[len(before) :] if whole.startswith(before) else decode(ids)
        return found.replace("\0", "\ufffd")  # which no text of PostgreSQL's may hold


def generate(
    backend: Backend,
    model: str,
    prompt: str,
    max_tokens: int,
    temperature: float,
    top_k: int | None,
    seed: int,
    time_limit: float | None,
) -> list[dict[str, Any]]:
    """Return how a model goes on with a prompt, the tokens of that, and why it stopped.

    Raises:
        ModelNotFound, InvalidOption, TrainingFailed
        InvalidInput: the model predicts no next tokens, or the prompt is longer than it reads.
    """
    sampling = _sampling(max_tokens, temperature, top_k, seed, time_limit)
    if not isinstance(prompt, str):
        raise InvalidInput(f"The prompt is {show(prompt)}.", hint="It is a text.")
    writer: Writer = kept_model(backend, model, _load, "writer")
    row_count(backend).add(1)
    given = writer.codec.encode(prompt) or [*writer.ends][:1]
    if not given:
        raise InvalidInput("The prompt is empty, and the model has no token to begin with.")
    if writer.context is not None and len(given) >= writer.context:
        raise InvalidInput(
            f"The prompt has {len(given)} tokens; the network reads {writer.context}, of which one "
            "at least is to come.",
            hint="Pass the end of the text alone.",
        )
    ids, why = backend.compute(
        lambda stopped: follow(
            writer.module,
            given,
            sampling,
            vocabulary=writer.codec.vocabulary,
            ends=writer.ends,
            context=writer.context,
            stopped=stopped,
        )
    )
    shown = ids[:-1] if why == "end" else ids
    return [{"generated": writer.text_after(given, shown), "tokens": len(ids), "stopped": why}]


def _sampling(
    max_tokens: int, temperature: float, top_k: int | None, seed: int, time_limit: float | None
) -> Sampling:
    for name, value, is_fine, what in (
        ("max_tokens", max_tokens, is_whole(max_tokens, 1, MAX_TOKENS), f"from 1 to {MAX_TOKENS}"),
        ("temperature", temperature, is_number(temperature, 0), "a number from 0"),
        ("top_k", top_k, top_k is None or is_whole(top_k, 1), "a whole number from 1, or null"),
        ("seed", seed, is_whole(seed, -(2**63), 2**63 - 1), "a whole number of 64 bits"),
        (
            "time_limit",
            time_limit,
            time_limit is None or (is_number(time_limit, 0) and time_limit > 0),
            "seconds above 0, or null",
        ),
    ):
        if not is_fine:
            raise InvalidOption(f"{name} is {show(value)}.", hint=f"It is {what}.")
    return Sampling(
        max_tokens=max_tokens,
        temperature=float(temperature),
        top_k=top_k,
        seed=seed,
        until=None if time_limit is None else monotonic() + time_limit,
    )


def _load(backend: Backend, model_id: int) -> Writer:
    connection = backend.connection
    saved = model_of(connection, model_id)
    decoding, end, length = None, None, None
    if saved.dataset_id is not None:
        decoding = find_decoding(connection, saved.dataset_id)
        tokenizer = decoding.inputs[0].tokenizer
        if decoding.task != "next_token" or tokenizer is None:
            raise _no_writer(saved.reference)
        codec, end, length = functions.codec(connection, tokenizer), tokenizer.end, tokenizer.length
    else:
        tags = connection.rows(load("exchange").find_tags, model_id=model_id)
        name = next((row["value"] for row in tags if row["key"] == TOKENIZER_TAG), None)
        if name is None:
            raise InvalidInput(
                f"Model {saved.reference} has neither a dataset of next tokens nor a tokenizer.",
                hint="Import it with its tokenizer.json, or with dataset.",
            )
        codec = functions.codec_of(functions.find_tokenizer(connection, name)[1])
        end = codec.end
    module = backend.recover(saved).eval()
    config = getattr(module, "config", None)
    ends = {end} if decoding is not None else {end, *_listed(getattr(config, "eos_token_id", None))}
    if decoding is None and not getattr(module, "go_on", None):
        raise _no_writer(saved.reference)
    own = getattr(config, "max_position_embeddings", None)
    return Writer(
        model=saved,
        module=module,
        codec=codec,
        ends=frozenset(one for one in ends if one is not None),
        context=own if is_whole(own, 1) else length,
    )


def _listed(value: object) -> list[int]:
    return [one for one in (value if isinstance(value, list) else [value]) if is_whole(one, 0)]


def _no_writer(reference: str) -> InvalidInput:
    return InvalidInput(
        f"Model {reference} does not predict next tokens.",
        hint="generate is for language models: docs/text.md. Others predict.",
    )
