"""Models imported by SQL, from below the folder that the owner has named; and what bare ones are.

An attack on that folder is in tests/attacks/test_imports.py.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

import mmdb
from mmdb import errors
from mmdb.cli import main
from mmdb.data.functions import find_factories
from mmdb.graph.spec.build import build

SMALL = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 300,
    "intermediate_size": 64, "max_position_embeddings": 32,
}  # fmt: skip
TOKENIZE = {"tokenize": {"said": {"function": "bytes", "length": 20}}}


@pytest.fixture
def place() -> Iterator[Path]:
    """Yield a folder that the server's user may read."""
    folder = Path(tempfile.mkdtemp(prefix="mmdb-imports-"))
    folder.chmod(0o755)
    yield folder.resolve()
    shutil.rmtree(folder)


@pytest.fixture
def db(database_url: str, place: Path) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        database.sql(
            "CREATE TABLE review AS SELECT i AS id, i % 7 AS a, i % 5 AS b, CASE WHEN i % 2 = 1"
            " THEN 'liked' ELSE 'hated' END AS y, 'text ' || i AS said"
            " FROM generate_series(1, 40) AS g (i)"
        )
        database.create_dataset(
            "reviews", "SELECT said, y FROM review", label="y", options=TOKENIZE
        )
        database.create_dataset("points", "SELECT a, b, y FROM review", label="y")
        database.sql(f"INSERT INTO mmdb.setting VALUES ('import_directory', '{place}')")
        yield database


def written(folder: Path, kind: str = "BertForSequenceClassification", **more: Any) -> Any:
    """Write a network of transformers as the library does, readable by all; return it."""
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(5)
    own = getattr(transformers, kind)
    module = own(own.config_class(**{**SMALL, **more})).eval()
    module.save_pretrained(folder)
    readable(folder)
    return module


def readable(folder: Path) -> None:
    """Let every user read a folder and its files."""
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755)


def there(db: mmdb.Database, place: Path, name: str) -> str:
    """Return a path as SQL takes it: of the server's folder, or of this process."""
    return name if db.connection.engine == "postgres" else str(place / name)


def bare(folder: Path, **more: Any) -> Any:
    """Write a folder whose config.json names nothing that is known; return the network."""
    module = written(folder, **more)
    (folder / "config.json").unlink()
    return module


def test_sql_imports_a_network_that_predicts(db: mmdb.Database, place: Path) -> None:
    own = written(place / "bert")
    (row,) = db.sql(
        "SELECT * FROM mmdb.import_model(path => %(path)s, name => 'bert', dataset => 'reviews')"
        if db.connection.engine == "postgres"
        else "FROM mmdb.import_model(path := $path, name := 'bert', dataset := 'reviews')",
        {"path": there(db, place, "bert")},
    )
    assert (row["name"], row["version"], row["notes"]) == ("bert", 1, [])
    assert row["tensors"] == len(own.state_dict()) and row["stored_bytes"] > 0
    ids = torch.zeros(1, 20, dtype=torch.int64)
    ids[0, :6] = torch.tensor([byte + 1 for byte in b"text 7"])
    with torch.no_grad():
        wanted = own(ids, attention_mask=(ids != 0).long()).logits.softmax(1)[0]
    (found,) = db.sql("SELECT mmdb.predict('bert', '{\"said\": \"text 7\"}') AS p")
    assert found["p"] == pytest.approx(wanted.tolist(), abs=1e-6)


def test_a_file_takes_an_architecture(db: mmdb.Database, place: Path) -> None:
    factories = find_factories(db.connection)
    module = build("mlp(hidden=[3])", {}, (2,), 2, factories)
    torch.save({"weights": module.state_dict(), "other": {"x": torch.ones(1)}}, place / "net.pt")
    (place / "net.pt").chmod(0o644)
    path = there(db, place, "net.pt")
    call = (
        f"SELECT * FROM mmdb.import_model('{path}', 'net', 'points', 'mlp(hidden=[3])',"
        " key %s 'weights')"
    )
    db.sql(call.replace("%s", "=>" if db.connection.engine == "postgres" else ":="))
    row = {"a": 3, "b": 4}
    assert len(db.predict("net", row)) == 2
    with pytest.raises(errors.UnsupportedContent, match="holds 2 state dicts"):
        db.sql(f"SELECT * FROM mmdb.import_model('{path}', 'net')")


@pytest.mark.parametrize("by", ["python", "sql", "command"])
def test_a_bare_model_is_given_what_it_lacks(
    db: mmdb.Database, database_url: str, place: Path, by: str
) -> None:
    own = bare(place / "bert")
    db.import_model(place / "bert", "bert")
    with pytest.raises(errors.MmdbError):
        db.predict("bert", {"said": "text 7"})
    config = {key: value for key, value in own.config.to_dict().items() if value is not None}
    given = {"factory": "transformers", "arguments": {"config": config}}
    before = amounts(db)
    if by == "python":
        found = db.attach_model("bert", architecture=given, dataset="reviews")
        assert (found.model, found.notes) == ("bert@1", ())
    elif by == "sql":
        text = json.dumps(given).replace("'", "''")
        rows = db.sql(f"SELECT * FROM mmdb.attach('bert', '{text}', 'reviews')")
        assert rows == [{"name": "bert", "version": 1, "notes": []}]
    else:
        db.close()
        words = ["--architecture", json.dumps(given), "--dataset", "reviews"]
        assert main(["attach", "bert", *words, "--database", database_url]) == 0
        db = mmdb.connect(database_url)
    assert amounts(db) == before
    ids = torch.zeros(1, 20, dtype=torch.int64)
    ids[0, :6] = torch.tensor([byte + 1 for byte in b"text 7"])
    with torch.no_grad():
        wanted = own(ids, attention_mask=(ids != 0).long()).logits.softmax(1)[0]
    assert db.predict("bert", {"said": "text 7"}) == pytest.approx(wanted.tolist(), abs=1e-6)
    assert type(db.recover("bert")).__name__ == "BertForSequenceClassification"
    for more in ({"architecture": given}, {"dataset": "reviews"}):
        with pytest.raises(errors.AlreadyExists, match="already"):
            db.attach_model("bert", **more)
    with pytest.raises(errors.InvalidOption, match="Nothing"):
        db.attach_model("bert")
    if by == "command":
        db.close()


def test_a_module_that_python_saved_is_given_its_dataset(db: mmdb.Database) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 2))
    db.save("net", module)
    db.attach_model("net", dataset="points")
    assert len(db.predict("net", {"a": 1, "b": 2})) == 2
    db.save("wide", torch.nn.Linear(3, 2))
    with pytest.raises((errors.ArchitectureError, errors.ModuleMismatch)):
        db.attach_model("wide", dataset="points")


def amounts(db: mmdb.Database) -> list[Any]:
    """Return how many tensors, lists and versions there are."""
    return [
        db.sql(f"SELECT count(*) AS n FROM mmdb.{name}")[0]["n"]
        for name in ("tensor", "tensor_chunk", "manifest", "manifest_tensor", "model")
    ]


def test_what_config_json_says_is_known_when_a_dataset_comes(
    db: mmdb.Database, place: Path
) -> None:
    written(place / "bert", id2label={0: "hated", 1: "liked"})
    db.import_model(place / "bert", "bert")
    db.attach_model("bert", dataset="reviews")
    assert len(db.predict("bert", {"said": "text 7"})) == 2
    rows = list(db.predict_query("bert", "SELECT id, said FROM review"))
    assert {row["prediction"] for row in rows} <= {"liked", "hated"}
    db.import_model(place / "bert", "again")
    db.export_model("again", place / "out")
    assert json.loads((place / "out" / "config.json").read_text())["model_type"] == "bert"


def test_what_does_not_fit_is_not_attached(db: mmdb.Database, place: Path) -> None:
    own = bare(place / "bert", num_labels=3)
    db.import_model(place / "bert", "bert")
    config = {key: value for key, value in own.config.to_dict().items() if value is not None}
    wrong = {"factory": "transformers", "arguments": {"config": {**config, "hidden_size": 48}}}
    fits = {"factory": "transformers", "arguments": {"config": config}}
    with pytest.raises(errors.ModuleMismatch) as raised:
        db.attach_model("bert", architecture=wrong, dataset="reviews")
    assert "(300, 48)" in str(raised.value) and "(300, 32)" in str(raised.value)
    with pytest.raises(errors.ModuleMismatch, match=r"classifier.weight.*2.*3"):
        db.attach_model("bert", architecture=fits, dataset="reviews")
    with pytest.raises(errors.DatasetNotFound):
        db.attach_model("bert", architecture=fits, dataset="none")
    with pytest.raises(errors.ArchitectureError, match="does not say"):
        db.attach_model("bert", dataset="reviews")
    with pytest.raises(errors.ModelNotFound):
        db.attach_model("none", dataset="reviews")
    written(place / "turned", id2label={0: "liked", 1: "hated"})
    db.import_model(place / "turned", "turned")
    with pytest.raises(errors.ImportMismatch, match="another order"):
        db.attach_model("turned", dataset="reviews")
    tensors = db.sql(
        "SELECT definition_id AS d, dataset_id AS s FROM mmdb.model WHERE name = 'bert'"
    )
    assert tensors == [{"d": None, "s": None}]


def test_tensors_that_are_tied_and_missing_are_not_made_up(db: mmdb.Database, place: Path) -> None:
    own = bare(place / "gpt", kind="GPT2LMHeadModel", n_embd=32, n_layer=1, n_head=2)
    db.import_model(place / "gpt", "gpt")
    config = {key: value for key, value in own.config.to_dict().items() if value is not None}
    given = {"config": config, "model": "GPT2LMHeadModel"}
    architecture = {"factory": "transformers", "arguments": given}
    with pytest.raises(errors.ArchitectureError, match="not known"):
        db.attach_model("gpt", architecture=architecture)
    with pytest.raises(errors.OutputMismatch):
        db.attach_model("gpt", architecture=architecture, dataset="reviews")
    with pytest.raises(
        errors.ModuleMismatch, match=r"'lm_head.weight', which the architecture ties"
    ):
        db.attach_model("gpt", architecture=architecture, input_shape=[9], outputs=300)
    base = {"factory": "transformers", "arguments": {"config": config, "model": "GPT2Model"}}
    with pytest.raises(errors.ModuleMismatch):
        db.attach_model("gpt", architecture=base, input_shape=[9], outputs=32)


def test_a_model_of_another_owner_is_not_changed(postgres_url: str, place: Path) -> None:
    with mmdb.connect(postgres_url) as owner:
        owner.save("bare", {"head.weight": torch.ones(1, 1), "head.bias": torch.ones(1)})
        owner.sql("UPDATE mmdb.model SET owner = 'somebody'")
        owner.sql("DO $$ BEGIN CREATE ROLE meddler LOGIN PASSWORD 'x'; EXCEPTION WHEN"
                  " duplicate_object THEN NULL; END $$")  # fmt: skip
        owner.sql("GRANT mmdb_trainer TO meddler")
        owner.sql("SET ROLE meddler")
        with pytest.raises(errors.RightsMissing, match="somebody"):
            owner.attach_model("bare", architecture="linear")


def test_files_that_are_no_models_say_so(db: mmdb.Database, place: Path) -> None:
    for name, content in (("empty.safetensors", b""), ("text.safetensors", b"hello there")):
        (place / name).write_bytes(content)
        (place / name).chmod(0o644)
        with pytest.raises(errors.FileError):
            db.sql(f"SELECT * FROM mmdb.import_model('{there(db, place, name)}', 'x')")
    with pytest.raises(errors.FileNotRead):
        db.sql(f"SELECT * FROM mmdb.import_model('{there(db, place, 'missing')}', 'x')")
    save_file({"w": torch.ones(2)}, place / "good.safetensors")
    (place / "good.safetensors").chmod(0o644)
    with pytest.raises(errors.InvalidName):
        db.sql(f"SELECT * FROM mmdb.import_model('{there(db, place, 'good.safetensors')}', 'a@b')")
    assert db.sql("SELECT count(*) AS n FROM mmdb.model")[0]["n"] == 0
    assert os.listdir(place)
