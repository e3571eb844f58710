"""Networks for pictures that transformers wrote, with what its processor makes of pictures."""

from __future__ import annotations

import base64
import importlib
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import mmdb
from mmdb import errors
from mmdb.cli import main

SIDE = 32
SMALL = {
    "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32,
    "image_size": SIDE, "patch_size": 8, "num_labels": 2,
}  # fmt: skip
HALF = [0.5, 0.5, 0.5]


def file_of(number: int, side: int = SIDE) -> bytes:
    """Return a random picture as a PNG."""
    pixels = np.random.default_rng(number).integers(0, 256, (side, side, 3), np.uint8)
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, "PNG")
    return sink.getvalue()


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        kind = "bytea" if database.connection.engine == "postgres" else "BLOB"
        database.sql(f"CREATE TABLE photo (id integer, file {kind}, y text)")
        for number in range(12):
            add(database, number, file_of(number))
        yield database


def add(db: mmdb.Database, number: int, file: bytes) -> None:
    """Add a row."""
    is_postgres = db.connection.engine == "postgres"
    decode = "decode('{}', 'base64')" if is_postgres else "from_base64('{}')"
    value = decode.format(base64.b64encode(file).decode())
    db.sql(f"INSERT INTO photo VALUES ({number}, {value}, 'y{number % 2}')")


def create(db: mmdb.Database, name: str, **transform: Any) -> None:
    """Make a dataset of the pictures."""
    options = {"transforms": {"file": {"kind": "picture", **transform}}}
    db.create_dataset(name, "SELECT file, y FROM photo", label="y", options=options)


def written(folder: Path, **processor: Any) -> tuple[Any, Any]:
    """Write a network with its processor; return both."""
    transformers: Any = importlib.import_module("transformers")
    torch.manual_seed(3)
    module = transformers.ViTForImageClassification(transformers.ViTConfig(**SMALL)).eval()
    module.save_pretrained(folder)
    given = {"size": {"height": SIDE, "width": SIDE}, **processor}
    own = transformers.ViTImageProcessorPil(**given)
    own.save_pretrained(folder)
    return module, own


@pytest.mark.parametrize("side", [SIDE, 45])
def test_a_picture_is_answered_as_the_library_answers(
    db: mmdb.Database, tmp_path: Path, side: int
) -> None:
    own, processor = written(tmp_path, image_std=[0.25, 0.5, 0.5])
    create(db, "photos", size=[SIDE, SIDE], mean=HALF, std=[0.25, 0.5, 0.5])
    assert db.import_model(tmp_path, "vit", dataset="photos").notes == ()
    file = file_of(99, side)
    pixels = processor(Image.open(io.BytesIO(file)), return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        wanted = own(pixels).logits.softmax(1)[0].tolist()
    # of equal size by rounding alone; else by that of Pillow's resized bytes, the same here
    add(db, 99, file)
    (found,) = db.sql("SELECT mmdb.predict('vit', p) AS p FROM photo AS p WHERE id = 99")
    assert found["p"] == pytest.approx(wanted, abs=1e-5)
    (shown,) = db.sql("SELECT * FROM mmdb.transform_overview WHERE column_name = 'file'")
    assert "divided by [0.25" in shown["meaning"]


def test_what_differs_is_refused_with_the_option_that_mends_it(
    db: mmdb.Database, tmp_path: Path
) -> None:
    written(tmp_path, rescale_factor=1 / 127.5, image_mean=[1, 1, 1], image_std=[1, 1, 1])
    create(db, "plain", size=[SIDE, SIDE])
    with pytest.raises(errors.ImportMismatch, match="column 'file' have mean") as raised:
        db.import_model(tmp_path, "vit", dataset="plain")
    assert db.sql("SELECT count(*) AS n FROM mmdb.model")[0]["n"] == 0
    said = re.search(r"options (\{.*\})", str(raised.value))
    assert said
    options = json.loads(said[1])
    wanted = {"kind": "picture", "size": [SIDE, SIDE], "mean": HALF, "std": HALF}
    assert options == {"transforms": {"file": wanted}}
    db.create_dataset("fitting", "SELECT file, y FROM photo", label="y", options=options)
    assert db.import_model(tmp_path, "vit", dataset="fitting").notes == ()
    # imported bare, the same is known when a dataset comes
    notes = db.import_model(tmp_path, "bare").notes
    assert any("expects them: options" in note and '"COLUMN"' in note for note in notes)
    with pytest.raises(errors.ImportMismatch, match="column 'file' have mean"):
        db.attach_model("bare", dataset="plain")
    assert db.attach_model("bare", dataset="fitting").notes == ()


def test_another_size_is_named_where_the_network_does_not_take_it(
    db: mmdb.Database, tmp_path: Path
) -> None:
    written(tmp_path)
    create(db, "small", size=[16, 16], mean=HALF, std=HALF)
    with pytest.raises(errors.ModuleMismatch, match="position_embeddings") as raised:
        db.import_model(tmp_path, "vit", dataset="small")
    assert f'"size": [{SIDE}, {SIDE}]' in str(raised.value)


def test_the_command_prints_the_option(
    db: mmdb.Database, database_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path)
    db.close()
    assert main(["import", str(tmp_path), "vit", "--database", database_url]) == 0
    assert f'"size": [{SIDE}, {SIDE}], "mean": [0.5, 0.5, 0.5]' in capsys.readouterr().out
