"""Some hundred objects under the names that mmdb uses: none of them is run by anybody else."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mmdb.db.install import install
from tests.bench.attack.planted import Shadow, chosen, shadows
from tests.bench.attack.shadows import SCHEMAS, Stage, act_as_owner, creep_in, prepare, stage
from tests.cluster import Cluster

#: What mmdb's statements took once.
KNOWN = {
    "unnest(bigint[])", "oid = regclass", "regclass = oid", "name ~~ name", "name || name",
    "pg_advisory_xact_lock(integer)",
}  # fmt: skip
COUNT = 500


def planted(session: psycopg.Connection[Any]) -> Sequence[Shadow]:
    """Return objects drawn at random, and what was taken once."""
    found = shadows(session, random.Random(7), 100_000)
    known = [one for one in found if one.title in KNOWN]
    assert {one.title for one in known} == KNOWN
    return [*known, *random.Random(7).sample(found, COUNT)]


@pytest.fixture(scope="module")
def planted_stage(cluster: Cluster) -> Iterator[Stage]:
    """Yield a database with mmdb in which objects were planted before."""
    with stage(cluster, planted) as made:
        prepare(made)
        yield made


def test_nothing_that_was_planted_is_run(planted_stage: Stage, tmp_path: Path) -> None:
    act_as_owner(planted_stage, tmp_path, briefly=True)
    creep_in(planted_stage)
    assert planted_stage.count > COUNT
    assert planted_stage.ran() == [] and planted_stage.failed == []


def test_no_statement_takes_what_was_planted(planted_stage: Stage) -> None:
    with psycopg.connect(planted_stage.url, autocommit=True) as owner:
        assert list(chosen(owner, SCHEMAS)) == []


def test_what_is_run_is_found(planted_stage: Stage) -> None:
    before = set(planted_stage.ran())
    with psycopg.connect(planted_stage.url, autocommit=True) as owner:
        owner.execute("SELECT pg_advisory_xact_lock(7)")
    assert set(planted_stage.ran()) - before == {
        "pg_advisory_xact_lock(integer) as postgres for postgres"
    }
    install(planted_stage.url)
