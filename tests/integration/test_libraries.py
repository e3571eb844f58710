"""Networks of installed libraries, trained and asked where the rows are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import mmdb
from mmdb import errors

ROWS = 160
BERT = (
    "transformers:bert(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, "
    "intermediate_size=64, vocab_size=300, hidden_dropout_prob=0.0)"
)


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        database.sql(
            "CREATE TABLE review AS SELECT i AS review_id, i % 2 = 1 AS liked, CASE WHEN i % 2 = 1"
            " THEN 'good' ELSE 'bad' END || CASE WHEN i % 3 > 0 THEN ' thing ' || i % 7"
            f" ELSE ' day' END AS said FROM generate_series(1, {ROWS}) AS g (i)"
        )
        database.create_dataset(
            "reviews",
            "SELECT said, liked FROM review",
            label="liked",
            options={"tokenize": {"said": {"function": "bytes", "length": 20}}},
        )
        yield database


def test_a_network_of_transformers_learns_from_texts(db: mmdb.Database) -> None:
    space = {"method": "grid", "space": {"lr": [0.01], "optimizer": ["adamw"]}}
    db.create_run("bert", dataset="reviews", architecture=BERT, epochs=12, search=space)
    db.run("bert").train(workers=1)
    found = list(db.predict_query("bert", "SELECT review_id AS id, said FROM review"))
    right = [row["prediction"] == str(int(row["key"]) % 2 == 1).lower() for row in found]
    assert sum(right) > 0.95 * ROWS
    module = db.recover("bert")
    assert type(module).__name__ == "BertForSequenceClassification"
    (one,) = db.sql("SELECT mmdb.predict('bert', '{\"said\": \"good thing 2\"}') AS p")
    (same,) = (row for row in found if int(row["key"]) == 23)
    assert max(one["p"]) == pytest.approx(same["probability"], abs=1e-6)
    (definition,) = db.sql("SELECT architecture FROM mmdb.definition")
    assert '"transformers"' in str(definition["architecture"]).replace("'", '"')


def test_what_cannot_be_built_leaves_nothing_behind(db: mmdb.Database) -> None:
    for architecture, said in (
        ("transformers:brt", "no model_type"),
        ("timm:resnet18(checkpoint_path='x')", "timm"),
    ):
        with pytest.raises(errors.FactoryFailed, match=said):
            db.create_run("none", dataset="reviews", architecture=architecture)
    assert db.sql("SELECT count(*) AS n FROM mmdb.run")[0]["n"] == 0
