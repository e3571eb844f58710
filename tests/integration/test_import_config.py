"""Folders that transformers wrote: what their config.json says becomes a model that predicts."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import mmdb
from mmdb import errors
from mmdb.cli import main

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 300,
    "intermediate_size": 64, "max_position_embeddings": 32,
}  # fmt: skip
TOKENIZE = {"tokenize": {"said": {"function": "bytes", "length": 20}}}


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        database.sql(
            "CREATE TABLE review AS SELECT i AS id, CASE WHEN i % 2 = 1 THEN 'liked' ELSE 'hated'"
            " END AS y, 'text ' || i AS said FROM generate_series(1, 40) AS g (i)"
        )
        database.create_dataset(
            "reviews", "SELECT said, y FROM review", label="y", options=TOKENIZE
        )
        yield database


def written(folder: Path, kind: str, **more: Any) -> Any:
    """Write a network of transformers as the library does; return it."""
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(5)
    own = getattr(transformers, kind)
    module = own(own.config_class(**{**SMALL, **more})).eval()
    module.save_pretrained(folder)
    return module


def test_a_classifier_predicts_raw_texts(db: mmdb.Database, tmp_path: Path) -> None:
    own = written(tmp_path, "BertForSequenceClassification", num_labels=2)
    found = db.import_model(tmp_path, "bert", dataset="reviews")
    assert found.notes == ()
    ids = torch.zeros(1, 20, dtype=torch.int64)
    ids[0, :6] = torch.tensor([byte + 1 for byte in b"text 7"])
    with torch.no_grad():
        wanted = own(ids, attention_mask=(ids != 0).long()).logits.softmax(1)[0]
    assert db.predict("bert", {"said": "text 7"}) == pytest.approx(wanted.tolist(), abs=1e-6)
    rows = list(db.predict_query("bert", "SELECT id, said FROM review"))
    assert {row["prediction"] for row in rows} <= {"liked", "hated"}
    assert torch.equal(db.recover("bert")(ids), own(ids, attention_mask=(ids != 0).long()).logits)
    db.export_model("bert", tmp_path / "again")
    again, before = (load_file(f / "model.safetensors") for f in (tmp_path / "again", tmp_path))
    assert all(torch.equal(again[path], before[path]) for path in before)


def test_without_a_dataset_the_module_is_built_all_the_same(
    db: mmdb.Database, tmp_path: Path
) -> None:
    own = written(tmp_path, "GPT2LMHeadModel", n_embd=32, n_layer=1, n_head=2)
    found = db.import_model(tmp_path, "gpt")
    assert not any("config.json is kept as data" in note for note in found.notes)
    module = db.recover("gpt")
    ids = torch.randint(1, 300, (2, 9))
    with torch.no_grad():
        assert torch.allclose(module(ids), own(ids).logits, atol=1e-6)
    tied = dict(module.named_parameters(remove_duplicate=False))
    assert tied["lm_head.weight"] is tied["transformer.wte.weight"]


def test_classes_in_another_order_are_refused(db: mmdb.Database, tmp_path: Path) -> None:
    written(tmp_path, "BertForSequenceClassification", id2label={0: "liked", 1: "hated"})
    with pytest.raises(errors.ImportMismatch, match="another order"):
        db.import_model(tmp_path, "bert", dataset="reviews")
    written(tmp_path, "BertForSequenceClassification", id2label={0: "hated", 1: "liked"})
    assert db.import_model(tmp_path, "bert", dataset="reviews").notes == ()


@pytest.mark.parametrize("wrong", ["classes", "width", "tokens", "missing"])
def test_what_does_not_fit_says_so_and_stores_nothing(
    db: mmdb.Database, tmp_path: Path, wrong: str
) -> None:
    written(tmp_path, "BertForSequenceClassification", num_labels=5 if wrong == "classes" else 2)
    config = json.loads((tmp_path / "config.json").read_text())
    if wrong == "width":
        (tmp_path / "config.json").write_text(json.dumps({**config, "intermediate_size": 65}))
    if wrong == "missing":
        tensors = load_file(tmp_path / "model.safetensors")
        del tensors["classifier.bias"]
        save_file(tensors, tmp_path / "model.safetensors")
    if wrong == "tokens":
        db.create_dataset("numbers", "SELECT id % 7 AS a, id % 3 AS b, y FROM review", label="y")
    dataset = "numbers" if wrong == "tokens" else "reviews"
    with pytest.raises((errors.ModuleMismatch, errors.ArchitectureError)):
        db.import_model(tmp_path, "bert", dataset=dataset)
    assert db.sql("SELECT count(*) AS n FROM mmdb.model")[0]["n"] == 0
    if wrong in ("width", "missing"):  # nothing was asked for: it is kept as tensors, with a note
        notes = db.import_model(tmp_path, "bert").notes
        assert any("config.json is kept as data alone" in note for note in notes)


def test_a_folder_of_code_is_not_run(db: mmdb.Database, tmp_path: Path) -> None:
    written(tmp_path, "BertForSequenceClassification")
    config = json.loads((tmp_path / "config.json").read_text())
    mark = tmp_path / "ran"
    (tmp_path / "modeling_hostile.py").write_text(f"open({str(mark)!r}, 'w').close()\n")
    hostile = {"auto_map": {"AutoModel": "modeling_hostile.Model"}, "model_type": "hostile"}
    (tmp_path / "config.json").write_text(json.dumps({**config, **hostile}))
    notes = db.import_model(tmp_path, "bert").notes
    assert any("no model_type 'hostile'" in note for note in notes)
    hostile["model_type"] = "bert"
    (tmp_path / "config.json").write_text(json.dumps({**config, **hostile}))
    assert db.import_model(tmp_path, "bert").notes == ()
    assert not mark.exists()


def test_the_command_takes_a_dataset(
    db: mmdb.Database, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path, "BertForSequenceClassification", num_labels=2)
    db.close()
    place = ["--dataset", "reviews", "--database", database_url]
    assert main(["import", str(tmp_path), "bert", *place]) == 0
    assert "bert@1" in capsys.readouterr().out
    with mmdb.connect(database_url) as again:
        assert len(again.predict("bert", {"said": "text 7"})) == 2
