"""Three statements bring a table that nobody prepared to a model, on both engines."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

import mmdb
from mmdb import errors
from tests.real_tables import TABLES, load_real_table

#: The least accuracy on rows that were held out. Of the diabetes' progression, whose deviation is
#: 77, it is the greatest root mean squared error.
LEAST = {"penguins": 0.95, "breast_cancer": 0.93, "wine": 0.9, "digit_files": 0.9}
GREATEST = 65.0


@pytest.fixture
def db(database_url: str) -> Iterator[mmdb.Database]:
    with mmdb.connect(database_url) as database:
        yield database


@pytest.mark.parametrize("name", TABLES)
def test_three_statements_train_a_model(db: mmdb.Database, name: str) -> None:
    table = load_real_table(db, name)
    with warnings.catch_warnings():  # of the key, and of a linear model that is as good
        warnings.simplefilter("ignore", errors.MmdbWarning)
        db.create_dataset("d", f"SELECT * FROM {name}", label=table.label)
        db.create_run("r", dataset="d")
        assert db.run("r").train(workers=2).failed == 0
    found = db.evaluate("r", "d")
    if name == "diabetes":
        assert found["rmse"] <= GREATEST
    else:
        assert found["accuracy"] >= LEAST[name]
