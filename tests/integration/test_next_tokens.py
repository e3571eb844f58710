"""Next tokens: texts packed into rows, networks that predict them, losses as transformers' own."""

from __future__ import annotations

import hashlib
import importlib
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset
from mmdb.data.reader import read_partition
from mmdb.graph.libraries import transformers as network
from tests.integration.test_import_config import written
from tests.integration.test_tokenizer_json import byte_pairs, quoted, texts, tokenizers

library: Any = importlib.import_module("transformers")
SMALL = "transformers:gpt2(n_embd=16, n_layer=2, n_head=2)"
STORIES = texts(90, seed=4)
LENGTH = 16


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        fill(database)
        yield database


def fill(db: mmdb.Database) -> None:
    db.sql("CREATE TABLE story (id int, said text)")
    rows = random.Random(db.connection.engine).sample([*enumerate(STORIES)], len(STORIES))
    values = ", ".join(f"({place}, '{quoted(text)}')" for place, text in rows)
    db.sql(f"INSERT INTO story VALUES {values}")


def make(db: mmdb.Database, function: str = "bytes", **more: Any) -> Any:
    given = {"function": function, "length": LENGTH, "pack": True, **more}
    if function == "pairs":
        db.register_function("pairs", byte_pairs(), "tokenizer")
    return db.create_dataset(
        "stories",
        "SELECT said FROM story",
        label="said",
        partitions=2,
        seed=3,
        options={"tokenize": {"said": given}, "split": {"test": 0.1}},
    )


def slices(db: mmdb.Database) -> dict[str, list[tuple[np.ndarray, np.ndarray]]]:
    """Return inputs and labels of the dataset's partitions, by role."""
    found: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
    for part in find_dataset(db.connection, "stories").slices:
        read = read_partition(db.connection, part.part_id, part.content_hash)
        found.setdefault(part.role, []).append(read.plain)
    return found


def ids_of(function: str, text: str) -> list[int]:
    if function == "bytes":
        return [byte + 1 for byte in text.encode()] or [257]
    ids = tokenizers.Tokenizer.from_str(byte_pairs()).encode(text).ids
    return ids or [0]


@pytest.mark.parametrize("function", ["bytes", "pairs"])
def test_rows_are_texts_one_after_the_other(db: mmdb.Database, function: str) -> None:
    summary = make(db, function)
    end = 257 if function == "bytes" else 0
    order = sorted(STORIES, key=lambda text: hashlib.md5(f"3 {text}".encode()).hexdigest())
    bounds = {"validation": (0, 18), "test": (18, 27), "train": (27, 90)}
    found = slices(db)
    for role, (first, last) in bounds.items():
        tokens = [i for text in order[first:last] for i in [*ids_of(function, text), end]]
        wanted = [tokens[k : k + LENGTH] for k in range(0, len(tokens), LENGTH)]
        wanted = sorted(row for row in wanted if len(row) > 1)
        rows = []
        for x, y in found[role]:
            assert x.dtype == y.dtype == np.int64
            assert x.shape == y.shape == (len(x), LENGTH)
            assert (y[:, -1] == -100).all()
            for row, label in zip(x.tolist(), y.tolist(), strict=True):
                size = sum(one != -100 for one in label) + 1
                assert label[: size - 1] == row[1:size]
                assert row[size:] == [0] * (LENGTH - size)
                rows.append(row[:size])
        assert sorted(rows) == wanted
    with mmdb.connect("duckdb://") as other:
        fill(other)
        assert make(other, function).content_hash == summary.content_hash


def test_without_packing_a_row_is_a_text(db: mmdb.Database) -> None:
    make(db, "pairs", pack=False)
    rows = [
        row for parts in slices(db).values() for x, y in parts for row in zip(x, y, strict=True)
    ]
    found = sorted([*x[:1].tolist(), *y[y != -100].tolist()] for x, y in rows)
    assert found == sorted([*ids_of("pairs", text), 0][:LENGTH] for text in STORIES)


def test_losses_and_perplexity_are_those_of_transformers(db: mmdb.Database) -> None:
    make(db, "pairs")
    run = db.create_run(
        "lm",
        dataset="stories",
        architecture=SMALL,
        search={"space": {"lr": [0.03], "batch_size": [8]}},
        epochs=3,
    )
    run.train()
    (best,) = db.sql(
        "SELECT candidate_id, loss, objective FROM mmdb.hop"
        " WHERE objective IS NOT NULL ORDER BY objective LIMIT 1"
    )
    db.save_candidate(best["candidate_id"], "lm")
    module = db.recover("lm")
    own = library.GPT2LMHeadModel(
        library.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=300)
    )
    own.load_state_dict(module.state_dict())
    ((x, y),) = slices(db)["validation"]
    labels = np.where(np.pad(y, ((0, 0), (1, 0)), constant_values=0)[:, :-1] == -100, -100, x)
    with torch.no_grad():
        wanted = float(own.eval()(torch.from_numpy(x), labels=torch.from_numpy(labels)).loss)
    assert best["loss"] == pytest.approx(wanted, abs=1e-6)
    assert best["objective"] == pytest.approx(math.exp(wanted), rel=1e-6)
    assert wanted < math.log(300) - 1
    for data in ("stories", f"SELECT said, said > 'n' AS late FROM story WHERE said IN ({held()})"):
        found = db.evaluate("lm", data, metrics=["perplexity", "log_loss"])
        assert found["perplexity"] == pytest.approx(math.exp(wanted), rel=1e-6)
        assert found["log_loss"] == pytest.approx(wanted, rel=1e-6)
    apart = db.evaluate("lm", data, by="late", intervals=True).rows
    assert [row["by_value"] for row in apart] == [None, "false", "true"]
    assert all(row["low"] <= row["value"] <= row["high"] for row in apart)
    assert sum(row["row_count"] for row in apart[1:]) == apart[0]["row_count"]
    (kept,) = db.sql("SELECT count(DISTINCT evaluation_id) AS n FROM mmdb.evaluation_overview")
    assert kept["n"] == 3
    for refused in ("confusion_matrix", "roc_curve", "calibration"):
        with pytest.raises(errors.InvalidInput, match="predicts next tokens"):
            getattr(db, refused)("lm", data)
    assert db.generate("lm", "one", max_tokens=2)["tokens"] <= 2
    with pytest.raises(errors.InvalidOption, match="accuracy"):
        db.evaluate("lm", data, metrics=["accuracy"])


def held() -> str:
    """Return the texts that are held out, as a list of SQL."""
    order = sorted(STORIES, key=lambda text: hashlib.md5(f"3 {text}".encode()).hexdigest())
    return ", ".join(f"'{quoted(text)}'" for text in order[:18])


def test_texts_that_are_not_packed_are_judged_one_by_one(db: mmdb.Database) -> None:
    make(db, "pairs", pack=False)
    create(db, SMALL, epochs=1)
    db.run("r").train(workers=1)
    module = db.recover("r")
    parts = [part for several in slices(db).values() for part in several]
    x, y = (torch.from_numpy(np.concatenate(one)) for one in zip(*parts, strict=True))
    with torch.no_grad():
        wanted = torch.nn.functional.cross_entropy(module(x).transpose(1, 2), y).item()
    found = db.evaluate("r", "SELECT id, said FROM story", metrics=["log_loss"])
    assert found["log_loss"] == pytest.approx(wanted, rel=1e-5)
    assert found.rows[0]["row_count"] == len(STORIES)
    with pytest.raises(errors.InvalidInput, match="no rows"):
        db.evaluate("r", "SELECT said FROM story WHERE said = 'none such'")
    with pytest.raises(errors.UnknownColumn, match="said"):
        db.evaluate("r", "SELECT id FROM story")


def test_an_imported_network_goes_on_training_and_keeps_its_loss(
    db: mmdb.Database, tmp_path: Path
) -> None:
    make(db, "pairs")
    own = written(tmp_path, "GPT2LMHeadModel", n_embd=16, n_layer=1, n_head=2)
    (tmp_path / "tokenizer.json").write_text(byte_pairs())
    assert db.import_model(tmp_path, "gpt", dataset="stories").notes == ()
    (x, _), *_ = slices(db)["train"]
    with torch.no_grad():
        assert torch.allclose(
            db.recover("gpt")(torch.from_numpy(x)), own(torch.from_numpy(x)).logits
        )
    with pytest.raises(errors.InvalidInput, match="predicts next tokens"):
        db.predict("gpt", {"said": "night"})
    with pytest.raises(errors.InvalidInput, match="predicts next tokens"):
        list(db.predict_query("gpt", "SELECT id, said FROM story"))


def test_small_tokens_of_a_network_are_refused(db: mmdb.Database, tmp_path: Path) -> None:
    make(db)
    with pytest.raises(errors.ArchitectureError, match=r"knows 99 tokens, .* has 258"):
        create(db, "transformers:gpt2(vocab_size=99, n_embd=16, n_layer=1, n_head=2)")
    with pytest.raises(errors.OutputMismatch, match=r"next tokens need \(2, 16, 258\)"):
        create(db, SMALL.replace(")", ", causal=false)"))
    with pytest.raises(errors.InvalidOption, match="next tokens"):
        create(db, SMALL, options={"ensemble": 2})
    with pytest.raises(errors.InvalidOption, match="hold several texts"):
        db.forget("stories", "said = 'night'")
    with pytest.raises(errors.InvalidOption, match="hold several texts"):
        db.refresh_dataset("stories")
    assert db.refresh_dataset("stories", fit=True).version == 2


def create(db: mmdb.Database, architecture: str, **more: Any) -> None:
    space = {"lr": [0.1, 0.2]}
    db.create_run(
        "r", dataset="stories", architecture=architecture, search={"space": space}, **more
    )


@pytest.mark.parametrize(
    ("query", "tokenize", "more", "match"),
    [
        ("SELECT said, id FROM story", {}, {}, "the query returns id, too"),
        ("SELECT said FROM story", {"function": "words"}, {}, "cannot become a text"),
        ("SELECT said FROM story", {"length": 1}, {}, "rows of 2 tokens"),
        ("SELECT said FROM story", {"end": 3}, {}, "has its own"),
        ("SELECT said FROM story", {"pack": 1}, {}, "true or false"),
        ("SELECT said FROM story", {}, {"task": "classification"}, "each next one is predicted"),
        ("SELECT said FROM story", {}, {"split": {"by": "group", "column": "said"}}, "split by"),
        ("SELECT said, id FROM story", {}, {"label": "id"}, "has end or pack"),
    ],
)
def test_what_cannot_be_learned_says_so(
    db: mmdb.Database, query: str, tokenize: Any, more: Any, match: str
) -> None:
    given = {"function": "bytes", "length": 8, "pack": True, **tokenize}
    options = {"tokenize": {"said": given}, **more}
    with pytest.raises(errors.InvalidOption, match=match):
        db.create_dataset("s", query, label=options.pop("label", "said"), options=options)


SIZES = {"num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 16}


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "opt", "gpt_neox"])
def test_no_network_sees_what_it_is_to_predict(name: str) -> None:
    sizes: Any = {**SIZES, "intermediate_size": 32}
    if name == "gpt2":
        sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2}
    torch.manual_seed(1)
    module = network((9,), 40, name=name, causal=True, **sizes).eval()
    x = torch.randint(0, 40, (3, 9))
    changed = x.clone()
    changed[:, 5:] = torch.randint(0, 40, (3, 4))
    with torch.no_grad():
        one, other = module(x), module(changed)
    assert one.shape == (3, 9, 40)
    assert torch.allclose(one[:, :5], other[:, :5], atol=1e-6)
    assert not torch.allclose(one[:, 5:], other[:, 5:], atol=1e-3)
