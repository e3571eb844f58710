"""Memory: ways to take too much end in an error of their own call, and limits of roles hold."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import mmdb
from mmdb import errors
from tests.attacks.memory_ways import MEMORY_BYTES, WAYS, Attack, Way
from tests.attacks.scene import Scene
from tests.limited_server import LimitedServer

#: Those that end within seconds, one or more of each kind; `bench attack` goes all of them.
QUICK = (
    "weights of almost a billion", "moments of each weight", "a wide transformer",
    "activations of a batch", "a grid", "one number for each word",
    "an array of a hundred million", "bytes", "a vector to predict", "numbers of candidates",
    "a shape to match",
)  # fmt: skip


@pytest.fixture(scope="module")
def attack() -> Iterator[Attack]:
    """Yield an attack on a server with little memory."""
    with LimitedServer(MEMORY_BYTES) as server:
        found = Attack(server, is_limited=server.is_limited)
        yield found
        found.close()


@pytest.mark.parametrize("way", [way for way in WAYS if way.name in QUICK], ids=lambda w: w.name)
def test_a_trainer_who_takes_memory_ends_no_session(attack: Attack, way: Way) -> None:
    assert attack.go(way) in ("MM143", "MM176")


def test_there_are_forty_ways_and_each_has_a_name() -> None:
    names = {way.name for way in WAYS}
    assert len(names) == len(WAYS) >= 40 and names >= set(QUICK)


@pytest.fixture
def limited(scene: Scene) -> Iterator[mmdb.Database]:
    """Yield the database as a trainer sees it whose calls may take 100 MB each."""
    limit = "INSERT INTO mmdb.role_limit (role, memory_bytes) VALUES ('attack_trainer', 100000000)"
    scene.owner.execute(limit)
    try:
        with mmdb.connect(scene.url_of("trainer")) as db:
            yield db
    finally:
        scene.owner.execute("DELETE FROM mmdb.role_limit")


def test_a_role_takes_what_its_limit_allows(limited: mmdb.Database) -> None:
    made = "SELECT mmdb.create_run('limited', 'd', 'mlp(hidden=[{0},{0}])')"
    with pytest.raises(errors.OutOfMemory, match="may take 100,000,000") as raised:
        limited.sql(made.format(6000))
    assert "mmdb.role_limit" in raised.value.hint
    limited.sql(made.format(10))
    limited.drop_run("limited")


@pytest.mark.parametrize(
    "value",
    [
        "repeat('x', 20000000 + g)",
        "convert_to(repeat('x', 20000000 + 0 * g), 'UTF8')",
        "array_fill(g::real, ARRAY[4000000])",
    ],
)
def test_a_value_that_does_not_fit_is_refused_before_it_is_read(
    limited: mmdb.Database, value: str
) -> None:
    query = f"SELECT {value} AS x, g % 2 AS y FROM generate_series(1, 9) AS s (g)"
    made = "SELECT * FROM mmdb.create_dataset('large', %(query)s)"
    with pytest.raises(errors.OutOfMemory, match=r"returned a row of [12][06],000,0"):
        limited.sql(made, {"query": query})
    assert limited.sql("SELECT 1 AS one") == [{"one": 1}]


def test_the_owners_setting_holds_for_all(scene: Scene) -> None:
    setting = "INSERT INTO mmdb.setting (name, value) VALUES ('memory_bytes', %s)"
    try:
        with mmdb.connect(scene.url) as db:
            db.sql(setting.replace("%s", "'1000000'"))
            with pytest.raises(errors.OutOfMemory, match="may take 1,000,000"):
                db.sql("SELECT mmdb.create_run('o', 'd', 'mlp(hidden=[999,999])')")
    finally:
        scene.owner.execute("DELETE FROM mmdb.setting WHERE name = 'memory_bytes'")


def test_a_list_of_any_length_is_no_argument(scene: Scene) -> None:
    session = scene.session("trainer")
    for called in (
        "mmdb.predict('r', array_fill(1::real, ARRAY[16777217]))",
        "mmdb.predict('r', array_fill(1::integer, ARRAY[16777217]))",
        "mmdb.match('linear', input_shape => array_fill(1, ARRAY[1000001]))",
        "mmdb.train_hops(1, array_fill(1::bigint, ARRAY[1000001]))",
    ):
        with pytest.raises(psycopg.Error, match=r"has 1[67]?[0-9,]+ numbers") as raised:
            session.execute(f"SELECT {called}".encode())
        assert raised.value.sqlstate == errors.OutOfMemory.sqlstate
    assert session.execute("SELECT mmdb.predict('r', ARRAY[1])").fetchone()
    assert session.execute("SELECT mmdb.predict('r', '[1]')").fetchone()
