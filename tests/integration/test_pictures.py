"""Pictures: JPEG and PNG files in a column of bytes."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

import mmdb
from mmdb import errors
from mmdb.data.dataset import find_dataset
from mmdb.data.pictures import decode, picture_transform
from mmdb.data.reader import read_partition

ROWS = 60


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        fill(database)
        yield database


def file_of(number: int, kind: str = "PNG") -> bytes:
    """Return a picture of 12 x 10 pixels, darker on one side by the number's parity."""
    pixels = np.random.default_rng(number).integers(0, 80, (10, 12, 3), np.uint8)
    half = pixels[:, :6] if number % 2 else pixels[:, 6:]
    half += 150
    sink = io.BytesIO()
    Image.fromarray(pixels).save(sink, kind)
    return sink.getvalue()


def fill(db: mmdb.Database, rows: int = ROWS) -> None:
    """Make table `photo (photo_id, file, side)`."""
    kind = "bytea" if db.connection.engine == "postgres" else "BLOB"
    db.sql(f"CREATE TABLE photo (photo_id integer, file {kind}, side text)")
    for number in range(rows):
        add(db, number, file_of(number, "JPEG" if number % 3 else "PNG"))


def add(db: mmdb.Database, number: int, file: bytes | None) -> None:
    """Add a row whose file is any bytes."""
    decoded = {"postgres": "decode('{}', 'base64')", "duckdb": "from_base64('{}')"}
    value = "NULL"
    if file is not None:
        value = decoded[db.connection.engine].format(base64.b64encode(file).decode())
    side = "left" if number % 2 else "right"
    db.sql(f"INSERT INTO photo VALUES ({number}, {value}, '{side}')")


def create(db: mmdb.Database, name: str = "photos", **options: Any) -> None:
    """Make a dataset of the files and their sides."""
    db.create_dataset(name, "SELECT file, side FROM photo", label="side", options=options)


def test_files_become_pictures_that_a_default_network_tells_apart(db: mmdb.Database) -> None:
    create(db)
    dataset = find_dataset(db.connection, "photos")
    assert dataset.decoding.inputs[0].shape == (3, 32, 32)
    (row,) = db.sql("SELECT * FROM mmdb.transform_overview WHERE column_name = 'file'")
    assert (row["role"], row["transform"]) == ("bytes", "picture")
    assert "32" in row["meaning"]
    db.create_run("run", dataset="photos", epochs=8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", errors.MmdbWarning)
        db.run("run").train(workers=1)
    rows = db.predict_query("run", "SELECT photo_id AS id, file FROM photo")
    found = [r["prediction"] == ("left" if int(r["key"]) % 2 else "right") for r in rows]
    assert np.mean(found) > 0.9
    (shown,) = db.sql("SELECT mmdb.predict('run', p) AS p FROM photo AS p WHERE photo_id = 4")
    assert max(shown["p"]) == pytest.approx(rows[4]["probability"], abs=1e-5)
    with pytest.raises(errors.InvalidInput, match="'file' holds no picture: no JPEG"):
        db.predict("run", {"file": "00ff"})
    add(db, ROWS, b"GIF89a")
    null = "SELECT 1 AS id, CASE WHEN photo_id < 0 THEN file END AS file FROM photo LIMIT 1"
    with pytest.raises(errors.InvalidInput, match=r"(?s)it is NULL.*HINT: .* leave other rows"):
        db.predict_query("run", null)
    with pytest.raises(errors.InvalidInput, match=f"no picture in the row with key '{ROWS}'"):
        db.predict_query("run", "SELECT photo_id AS id, file FROM photo")


def test_stored_pixels_are_those_that_pillow_decodes(db: mmdb.Database) -> None:
    create(db, transforms={"file": {"kind": "picture", "size": [5, 6], "channels": 1}})
    dataset = find_dataset(db.connection, "photos")
    parts = [read_partition(db.connection, p.part_id, p.content_hash) for p in dataset.slices]
    stored = {row.tobytes() for part in parts for row in part.plain[0]}
    expected = set()
    for number in range(ROWS):
        file = io.BytesIO(file_of(number, "JPEG" if number % 3 else "PNG"))
        picture = Image.open(file)
        picture.draft("L", (6, 5))  # halves a JPEG, and leaves a PNG
        small = picture.convert("L").resize((6, 5), Image.Resampling.BILINEAR)
        expected.add((np.asarray(small, np.uint8)[None] / np.float32(255)).tobytes())
    assert stored == expected


@pytest.mark.parametrize("channels", [1, 3])
def test_sixteen_bits_of_gray_become_eight(channels: int) -> None:
    values = np.array([[0, 128, 129, 255], [256, 1000, 40_000, 65_535]], np.uint16)
    sink = io.BytesIO()
    Image.fromarray(values).save(sink, "PNG")
    given = picture_transform({"size": [2, 4], "channels": channels})
    expected = np.rint(values / 257).reshape(1, -1).repeat(channels, 0)
    assert (decode(given, sink.getvalue()) == expected.reshape(-1)).all()


def test_a_jpeg_that_is_halved_as_it_is_decoded_looks_as_one_that_is_not() -> None:
    steps = np.linspace(0, 6, 256)
    pixels = (np.sin(steps)[:, None, None] + np.cos(steps * [[1], [2], [3]]).T[None]) * 60 + 128
    sink = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).save(sink, "JPEG", quality=90)
    given = picture_transform({"size": [32, 32]})
    plain = Image.open(sink).resize((32, 32), Image.Resampling.BILINEAR)
    expected = np.asarray(plain, np.float64).transpose(2, 0, 1).reshape(-1)
    apart = np.abs(decode(given, sink.getvalue()) - expected)
    assert apart.mean() < 1 and apart.max() < 8  # of 255


def test_content_is_the_same_on_both_engines(duckdb_url: str, postgres_url: str) -> None:
    found = []
    for url in (duckdb_url, postgres_url):
        with mmdb.connect(url) as db:
            fill(db)
            create(db)
            found.append(find_dataset(db.connection, "photos").content_hash)
    assert found[0] == found[1]


@pytest.mark.parametrize("damaged", [b"", b"GIF89a", file_of(1)[:80], None])
def test_a_damaged_file_is_named_or_skipped(db: mmdb.Database, damaged: bytes | None) -> None:
    add(db, ROWS, damaged)
    db.sql(f"UPDATE photo SET side = 'neither' WHERE photo_id = {ROWS}")
    with pytest.raises(errors.DataError, match=f"'file' holds no picture in row {ROWS + 1} of"):
        create(db)
    assert db.sql("SELECT name FROM mmdb.dataset_overview") == []
    with pytest.warns(errors.MmdbWarning, match="1 rows are left out: column 'file'") as warned:
        create(db, transforms={"file": {"kind": "picture", "on_error": "skip"}})
    assert [one.filename for one in warned] == [__file__]  # the caller's line, not mmdb's
    found = find_dataset(db.connection, "photos")
    assert (found.row_count, found.decoding.classes) == (ROWS, ("left", "right"))


def test_byte_strings_stay_bytes_where_it_is_asked(db: mmdb.Database) -> None:
    with pytest.raises(errors.RaggedArray):
        create(db, transforms={"file": "passthrough"})
    with pytest.raises(errors.InvalidOption, match="on_error"):
        create(db, transforms={"file": {"kind": "picture", "on_error": "ignore"}})
    with pytest.raises(errors.InvalidOption, match="size"):
        create(db, transforms={"file": {"kind": "picture", "size": [0, 8]}})


def test_a_picture_of_too_many_pixels_is_no_picture(db: mmdb.Database) -> None:
    sink = io.BytesIO()
    Image.new("1", (8_000, 8_000)).save(sink, "PNG")
    add(db, ROWS, sink.getvalue())
    with pytest.raises(errors.DataError, match="too many"):
        create(db)
