"""Texts that models go on with: greedy as transformers does it, drawn by a seed, and ended."""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import torch
from torch import Tensor, nn

import mmdb
from mmdb import errors
from mmdb.graph.libraries import transformers as network
from mmdb.train.compute.generation import Sampling, choose, generate
from tests.copies import Copies
from tests.integration.test_import_config import written
from tests.integration.test_next_tokens import SIZES, fill
from tests.integration.test_next_tokens import make as make_dataset
from tests.integration.test_tokenizer_json import byte_pairs, tokenizers

library: Any = importlib.import_module("transformers")
PROMPTS = ["night", "good film", "Straße 42", "", "the day don't"]


@pytest.fixture(scope="module", params=["duckdb", "postgres"])
def db(request: pytest.FixtureRequest, copies: Copies) -> Iterator[mmdb.Database]:
    """Yield a database with texts; each test has models, and datasets, by names of its own."""
    with copies.open(request.param, fill) as database:
        yield database


def folder(path: Path, **more: Any) -> Any:
    """Write a GPT-2 with its tokenizer, of weights that are far from alike."""
    given = {"n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.5}
    eos = {"eos_token_id": 0, "bos_token_id": 0}
    own = written(path, "GPT2LMHeadModel", **{**given, **eos, **more})
    (path / "tokenizer.json").write_text(byte_pairs())
    return own


def greedy(own: Any, prompt: str, count: int) -> list[int]:
    """Return the ids with which transformers goes on with a prompt."""
    ids = tokenizers.Tokenizer.from_str(byte_pairs()).encode(prompt).ids or [0]
    with torch.no_grad():
        found = own.generate(
            torch.tensor([ids]),
            do_sample=False,
            max_new_tokens=count,
            eos_token_id=0,
            pad_token_id=0,
        )
    return list(found[0, len(ids) :].tolist())


@pytest.mark.parametrize("has_dataset", [True, False])
def test_the_likeliest_tokens_are_those_of_transformers(
    db: mmdb.Database, tmp_path: Path, has_dataset: bool
) -> None:
    own = folder(tmp_path)
    if has_dataset:
        make_dataset(db, "pairs")
    model = "of_stories" if has_dataset else "of_none"
    db.import_model(tmp_path, model, dataset="stories" if has_dataset else None)
    decode = tokenizers.Tokenizer.from_str(byte_pairs()).decode
    texts = set()
    for prompt in PROMPTS:
        wanted = greedy(own, prompt, 25)
        found = db.generate(model, prompt, max_tokens=25)
        ended = wanted[-1] == 0
        assert found["tokens"] == len(wanted)
        assert found["stopped"] == ("end" if ended else "tokens")
        assert found["generated"] == decode(wanted[:-1] if ended else wanted).replace(
            "\0", "\ufffd"
        )
        texts.add(found["generated"])
        (row,) = db.sql(
            f"SELECT * FROM mmdb.generate('{model}', '{prompt.replace(chr(39), chr(39) * 2)}', 25)"
        )
        assert dict(row) == found
    assert len(texts) > 3


def test_what_is_drawn_depends_on_the_seed_alone(db: mmdb.Database, tmp_path: Path) -> None:
    folder(tmp_path)
    db.import_model(tmp_path, "drawn")
    given: dict[str, Any] = {"max_tokens": 20, "temperature": 1.5}
    drawn = [db.generate("drawn", "night", seed=seed, **given) for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2] != drawn[1]
    narrow = db.generate("drawn", "night", seed=1, top_k=1, **given)
    assert narrow == db.generate("drawn", "night", max_tokens=20)


def test_it_stops_and_says_why(db: mmdb.Database, tmp_path: Path) -> None:
    folder(tmp_path, max_position_embeddings=12)
    db.import_model(tmp_path, "short")
    found = db.generate("short", "aa", temperature=9.0, top_k=40, seed=5)
    assert (found["tokens"], found["stopped"]) == (10, "context")
    found = db.generate("short", "aa", time_limit=1e-9)
    assert found == {"generated": "", "tokens": 0, "stopped": "time"}
    with pytest.raises(errors.InvalidInput, match="has 12 tokens; the network reads 12"):
        db.generate("short", "q" * 12)
    with pytest.raises(errors.InvalidOption, match=r"prompt is '\\ud800'"):
        db.generate("short", "\ud800")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_tokens", 0),
        ("temperature", -1.0),
        ("temperature", float("nan")),
        ("top_k", 0),
        ("time_limit", 0.0),
    ],
)
def test_arguments_are_checked(db: mmdb.Database, name: str, value: Any) -> None:
    with pytest.raises(errors.InvalidOption, match=name):
        db.generate("gpt", "a", **{name: value})


def test_other_models_say_that_they_do_not_write(db: mmdb.Database, tmp_path: Path) -> None:
    query = "SELECT id % 2 AS y, id AS a FROM story"
    db.create_dataset("numbers", query, label="y", options={"roles": {"a": "feature"}})
    db.save("plain", nn.Sequential(nn.Flatten(), nn.Linear(1, 2)), dataset="numbers")
    written(tmp_path, "BertForSequenceClassification")
    (tmp_path / "tokenizer.json").write_text(byte_pairs(290))
    db.import_model(tmp_path, "bert")
    folder(tmp_path / "gpt")
    (tmp_path / "gpt" / "tokenizer.json").unlink()
    db.import_model(tmp_path / "gpt", "bare")
    for _ in range(2):
        assert db.predict("plain", [1.0])
        for model, match in (
            ("plain", "does not predict next tokens"),
            ("bert", "does not predict next tokens"),
            ("bare", "neither a dataset of next tokens nor a tokenizer"),
        ):
            with pytest.raises(errors.InvalidInput, match=match):
                db.generate(model, "a")
    with pytest.raises(errors.ModelNotFound):
        db.generate("none", "a")


def test_a_trained_model_says_what_it_has_read(db: mmdb.Database) -> None:
    db.sql(
        "CREATE TABLE cat AS SELECT i AS id, 'the cat sat' AS said"
        " FROM generate_series(1, 90) AS g (i)"
    )
    tokenize = {"said": {"function": "bytes", "length": 16, "pack": True}}
    db.create_dataset(
        "cats", "SELECT said FROM cat", label="said", partitions=2, options={"tokenize": tokenize}
    )
    run = db.create_run(
        "cats",
        dataset="cats",
        architecture="transformers:gpt2(n_embd=32, n_layer=1, n_head=2)",
        search={"space": {"lr": [0.01], "batch_size": [8]}},
        epochs=12,
    )
    run.train()
    (best,) = db.sql("SELECT candidate_id FROM mmdb.candidate")
    db.save_candidate(best["candidate_id"], "cats")
    found = db.generate("cats", "the cat ")
    assert found == {"generated": "sat", "tokens": 4, "stopped": "end"}


def test_a_cancel_is_heeded_between_tokens(postgres_url: str, tmp_path: Path) -> None:
    sizes = {"num_key_value_heads": 2, "max_position_embeddings": 10**6, "eos_token_id": 299}
    written(tmp_path, "LlamaForCausalLM", **sizes)
    (tmp_path / "tokenizer.json").write_text(byte_pairs(290))
    with mmdb.connect(postgres_url) as db:
        db.import_model(tmp_path, "llama")
        assert db.generate("llama", "a", max_tokens=3)["tokens"] == 3
    with psycopg.connect(postgres_url) as session:
        session.execute("SET statement_timeout = 400")
        with pytest.raises(psycopg.errors.QueryCanceled):
            session.execute("SELECT * FROM mmdb.generate('llama', 'a', 65536)")
        session.rollback()
        session.execute("SET statement_timeout = 0")
        (row,) = session.execute("SELECT * FROM mmdb.generate('llama', 'a', 3)").fetchall()
        assert row[1:] == (3, "tokens")


class Counts(nn.Module):
    """Says that 1 more than the last token is next, and counts how often it is asked."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens, self.asked = tokens, 0

    def forward(self, x: Tensor) -> Tensor:
        self.asked += 1
        return nn.functional.one_hot((x + 1) % self.tokens, self.tokens).float()


def follow(module: nn.Module, prompt: list[int], **more: Any) -> Any:
    how: dict[str, Any] = {"vocabulary": 9, "ends": {8}, "context": None} | more
    return generate(module, prompt, how.pop("sampling", Sampling(max_tokens=5)), **how)


def test_any_network_is_followed_to_its_end() -> None:
    assert follow(Counts(9), [4, 5]) == ([6, 7, 8], "end")
    assert follow(Counts(9), [0]) == ([1, 2, 3, 4, 5], "tokens")
    assert follow(Counts(9), [0], context=3) == ([1, 2], "context")
    assert follow(Counts(12), [7], ends=()) == ([8, 0, 1, 2, 3], "tokens")  # 9 is no token
    module = Counts(9)
    with pytest.raises(errors.Cancelled):
        follow(module, [0], stopped=lambda: module.asked == 2)
    assert module.asked == 2


def test_tokens_are_drawn_as_often_as_they_are_probable() -> None:
    outputs = torch.randn(7, generator=torch.Generator().manual_seed(3))
    for temperature, top_k in ((0.5, None), (2.0, None), (1.0, 3), (1.0, 99)):
        sampling = Sampling(max_tokens=1, temperature=temperature, top_k=top_k)
        generator, count = torch.Generator().manual_seed(0), 4000
        drawn = Counter(choose(outputs, sampling, generator) for _ in range(count))
        kept = outputs >= outputs.sort(descending=True).values[min(top_k or 7, 7) - 1]
        chances = torch.where(kept, (outputs / temperature).exp(), 0.0)
        for token, chance in enumerate((chances / chances.sum()).tolist()):
            spread = (count * chance * (1 - chance)) ** 0.5
            assert abs(drawn[token] - count * chance) <= 5 * spread


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "opt", "gpt_neox", "mamba"])
def test_what_is_remembered_changes_nothing(name: str) -> None:
    sizes: Any = {**SIZES, "intermediate_size": 32, "initializer_range": 0.5}
    if name == "gpt2":
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "initializer_range": 0.5}
    torch.manual_seed(2)
    module = network((30,), 40, name=name, causal=True, **sizes).eval()
    sampling = Sampling(max_tokens=12)
    found = follow(module, [3, 1, 4], sampling=sampling, vocabulary=40, ends=())
    ids = [3, 1, 4]
    for _ in range(12):
        with torch.no_grad():
            ids.append(int(module(torch.tensor([ids]))[0, -1].argmax()))
    assert found == (ids[3:], "tokens")
    assert json.loads(json.dumps(found[0])) == found[0]
