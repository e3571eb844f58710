"""Pictures, texts and numbers in one table."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import mmdb
from tests.integration.test_pictures import fill


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        fill(database)
        yield database


def test_pictures_texts_and_numbers_are_read_side_by_side(db: mmdb.Database) -> None:
    """Each of three columns tells a part of the label: all are needed for every row."""
    fine, bad = "a fine thing, said number ", "what a bad one is "
    text = f"CASE WHEN photo_id / 2 % 2 = 0 THEN '{fine}' ELSE '{bad}' END"
    query = f"SELECT photo_id AS id, file, {text} || photo_id % 23 AS note, "
    query += "photo_id / 4 % 2 AS n, "
    label = "side || '/' || photo_id / 2 % 2 || '/' || photo_id / 4 % 2 AS y FROM photo"
    db.create_dataset(
        "mixed", query + label, label="y", validation=0, options={"roles": {"id": "key"}}
    )
    shown = db.sql("SELECT column_name, transform FROM mmdb.transform_overview ORDER BY ordinal")
    expected = {"id": "passthrough", "file": "picture", "note": "words", "n": "robust"}
    assert {r["column_name"]: r["transform"] for r in shown} == expected | {"y": "passthrough"}
    db.create_run("run", dataset="mixed", epochs=15)
    assert db.run("run").train(workers=1).failed == 0
    rows = db.predict_query("run", f"{query} {label}")
    truth = db.sql(f"SELECT {label}")
    found = [r["prediction"] == t["y"] for r, t in zip(rows, truth, strict=True)]
    assert np.mean(found) > 0.9
