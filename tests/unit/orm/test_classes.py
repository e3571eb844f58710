"""The mapped classes by themselves."""

from __future__ import annotations

import subprocess
import sys

import pytest
from sqlalchemy import Table
from sqlalchemy.orm import configure_mappers

from mmdb import api, errors, orm

# xdist needs one order in all processes
MAPPED = sorted((m.class_ for m in orm.Base.registry.mappers), key=lambda mapped: mapped.__name__)
#: Calls that are commands.
COMMANDS = {"`mmdb install`", "`mmdb worker`"}


def test_every_class_is_public() -> None:
    configure_mappers()
    assert {mapped.__name__ for mapped in MAPPED} <= set(orm.__all__)
    assert list(orm.__all__) == sorted(orm.__all__)


@pytest.mark.parametrize("mapped", MAPPED, ids=lambda mapped: mapped.__name__)
def test_the_call_that_writes_a_table_is_there(mapped: type[orm.Base]) -> None:
    if issubclass(mapped, orm.View):
        assert not mapped.written_by
    elif mapped.written_by not in COMMANDS:
        owner, _, call = mapped.written_by.partition(".")
        owners = {"Database": api.Database, "Run": api.Run}
        assert callable(getattr(owners[owner], call, None)), mapped.written_by


def test_relationships_only_read() -> None:
    for mapper in orm.Base.registry.mappers:
        assert all(relation.viewonly for relation in mapper.relationships), mapper


def test_every_table_is_mapped_once() -> None:
    tables = [m.local_table for m in orm.Base.registry.mappers if isinstance(m.local_table, Table)]
    assert sorted(t.name for t in tables) == sorted(
        t.name for t in orm.Base.metadata.tables.values()
    )


def test_a_row_says_what_it_is() -> None:
    row = orm.Hop.__new__(orm.Hop)
    row.__dict__.update(part_id=1, candidate_id=2, epoch=3)
    assert repr(row) == "Hop(part_id=1, candidate_id=2, epoch=3)"


def test_a_row_cannot_be_made_or_changed() -> None:
    with pytest.raises(errors.ReadOnly, match="Run") as refused:
        orm.Run(name="new")
    assert "Database.create_run" in refused.value.hint


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_mmdb_alone_loads_no_sqlalchemy() -> None:
    assert run("import mmdb.api, sys; print('sqlalchemy' in sys.modules)") == "False"


def test_its_absence_is_said() -> None:
    code = """
import sys
sys.modules["sqlalchemy"] = None
try:
    from mmdb import orm
except Exception as error:
    print(type(error).__name__, error)
"""
    assert "mmdb-learn[orm]" in run(code) and run(code).startswith("EngineError")
