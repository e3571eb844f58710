"""The engine citus asked for where there is none."""

from __future__ import annotations

import pytest

from mmdb import errors
from mmdb.cli import main
from mmdb.db.install import install


def test_a_database_without_the_extension_cannot_be_spread(
    postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["install", "--engine", "citus", postgres_url]) == 1
    said = capsys.readouterr().err
    assert "no extension citus" in said and "citus_add_node" in said
    install(postgres_url, engine="postgres")  # as it is


def test_duckdb_has_no_nodes(duckdb_url: str) -> None:
    with pytest.raises(errors.InvalidOption):
        install(duckdb_url, engine="citus")
