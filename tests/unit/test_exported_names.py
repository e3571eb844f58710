"""What `import mmdb` offers is a decision."""

from __future__ import annotations

import subprocess
import sys

import pytest

import mmdb


def test_all_is_sorted() -> None:
    assert list(mmdb.__all__) == sorted(mmdb.__all__)


def test_a_namespace_listing_shows_the_public_names_alone() -> None:
    assert dir(mmdb) == list(mmdb.__all__)


@pytest.mark.parametrize("name", mmdb.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(mmdb, name).__name__ == name


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        getattr(mmdb, "nothing")  # noqa: B009


def test_importing_mmdb_loads_neither_torch_nor_a_driver() -> None:
    heavy = ("torch", "duckdb", "psycopg", "networkx")
    code = f"import mmdb, sys; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_session_that_keeps_and_traces_data_loads_no_torch() -> None:
    code = """
import sys, mmdb
with mmdb.connect("duckdb://") as db:
    db.sql("CREATE TABLE t AS SELECT i AS id, i / 9.0 AS x, i % 3 AS y FROM range(99) AS g (i)")
    db.create_dataset("d", "SELECT * FROM t", label="y", partitions=2)
    db.refresh_dataset("d")
    db.lineage("dataset:d", "up")
    print([name for name in ("torch", "numba", "networkx") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_session_that_predicts_loads_no_parser_and_no_driver() -> None:
    names = "mmdb.server.predictor, mmdb.train.replay.recipe_replay, mmdb.server.model_functions"
    unwanted = "[n for n in ('sqlglot', 'psycopg', 'duckdb') if n in sys.modules]"
    code = f"import sys, {names}; print({unwanted})"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_of_too_many_arguments_the_function_is_named() -> None:
    with mmdb.connect("duckdb://") as db, pytest.raises(TypeError, match=r"drop_run\(\) takes 2"):
        db.drop_run("a", "b")  # type: ignore[call-arg]
