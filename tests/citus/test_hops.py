"""Hops on a coordinator with two nodes: where they run, what they leave, and who may do them."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg
import pytest
from blake3 import blake3

import mmdb
from mmdb.api import Database
from mmdb.db.citus import keys_of_nodes, places
from mmdb.db.postgres import PostgresConnection
from mmdb.db.queries import load
from mmdb.errors import (
    CandidateBusy,
    InvalidOption,
    NodeLost,
    OutOfTurn,
    RanOnCoordinator,
    RunBusy,
    WorkerDragged,
)
from mmdb.train.drive.cleanup import NAME as SWEEPER
from mmdb.train.drive.cleanup import Sweeper
from mmdb.train.drive.driver import Driver
from mmdb.train.drive.server_worker import CitusWorker, processors
from mmdb.train.drive.worker import PoolWorker, workers_of
from mmdb.train.hops.orders import HopOrder, to_json
from mmdb.train.replay.summary import Summary
from mmdb.train.values.seeds import visit_order
from tests.cluster import Cluster

pytestmark = pytest.mark.citus

ROWS, WIDTH = 600, 8
SEARCH = {"space": {"lr": [0.05, 0.02, 0.01], "optimizer": [{"name": "sgd", "momentum": 0.9}]}}
MLP = "mlp(hidden=[16], dropout=0.2)"
HOP = "SELECT * FROM mmdb.train_hop(%(part_id)s, %(candidate_id)s)"


def fill(db: Database) -> None:
    """Register the same dataset on every engine."""
    x = np.random.default_rng(2).normal(size=(ROWS, WIDTH)).astype(np.float32)
    columns = ", ".join(f"c{k} real" for k in range(WIDTH))
    db.sql(f"CREATE TABLE points ({columns}, y integer)")
    values = ", ".join(f"({', '.join(map(repr, row.tolist()))}, {int(row[0] > 0)})" for row in x)
    db.sql(f"INSERT INTO points VALUES {values}")
    db.create_dataset("d", "SELECT * FROM points", partitions=3, seed=3)
    db.create_dataset("whole", "SELECT * FROM points", partitions=3, seed=4, validation=0)


def url_of(db: Database) -> str:
    assert isinstance(db.connection, PostgresConnection)
    return db.connection.url


def create(db: Database, name: str, **options: Any) -> Any:
    given: dict[str, Any] = {"dataset": "d", "epochs": 2, "seed": 7} | options
    return db.create_run(name, architecture=MLP, search=SEARCH, **given)


def hops(db: Database, run: str) -> list[dict[str, Any]]:
    """Return a run's hops, each candidate's in their order."""
    return [
        dict(row)
        for row in db.sql(
            "SELECT c.ordinal AS candidate, h.ordinal, h.epoch, h.part_id, h.node, h.worker, "
            "h.candidate_id, h.state_out, h.objective, p.role FROM mmdb.hop h "
            "JOIN mmdb.partition p ON p.part_id = h.part_id "
            "JOIN mmdb.candidate c ON c.candidate_id = h.candidate_id "
            "JOIN mmdb.run r ON r.run_id = c.run_id WHERE r.name = %(run)s ORDER BY 1, 2",
            {"run": run},
        )
    ]


def states(db: Database, run: str) -> list[tuple[int, int, bytes]]:
    return [(h["candidate"], h["ordinal"], bytes(h["state_out"])) for h in hops(db, run)]


def count(db: Database, table: str, run: str) -> int:
    """Return how many rows of a run's candidates a table has."""
    return int(
        db.sql(
            f"SELECT count(*) AS n FROM mmdb.{table} t WHERE t.candidate_id IN (SELECT "
            "c.candidate_id FROM mmdb.candidate c JOIN mmdb.run r ON r.run_id = c.run_id "
            f"WHERE r.name = '{run}')"
        )[0]["n"]
    )


@pytest.fixture(scope="module")
def db(new_citus_database: Callable[[str], str]) -> Iterator[Database]:
    """Yield a database on two nodes in which run `first` was trained."""
    with mmdb.connect(new_citus_database("hops")) as db:
        fill(db)
        create(db, "first").train(workers=3)
        yield db


@pytest.fixture(scope="module")
def one_server(cluster: Cluster, template: str) -> Iterator[Database]:
    """Yield one PostgreSQL with the same dataset."""
    with mmdb.connect(cluster.create_database("mmdb_beside_hops", template)) as db:
        fill(db)
        yield db
    cluster.drop_database("mmdb_beside_hops")


@pytest.fixture(scope="module")
def expected(one_server: Database) -> list[tuple[int, int, bytes]]:
    """Return what the same run leaves on one PostgreSQL."""
    create(one_server, "first").train(workers=1)
    return states(one_server, "first")


@pytest.fixture(scope="module")
def by_hand(db: Database) -> dict[str, int]:
    """Return the place of a hop that may come next in a run of any order."""
    return place_of_first_hop(db, "by-hand")


def place_of_first_hop(db: Database, run: str) -> dict[str, Any]:
    """Create a run of any order; return the place of a hop that may come next."""
    create(db, run, options={"order": "free"})
    query = "SELECT candidate_id FROM mmdb.leaderboard WHERE run = %(run)s LIMIT 1"
    (row,) = db.sql(query, {"run": run})
    (part,) = db.sql("SELECT min(part_id) AS part_id FROM mmdb.partition WHERE role = 'train'")
    return {"part_id": part["part_id"], "candidate_id": row["candidate_id"]}


# -- runs --------------------------------------------------------------------------


def test_every_train_hop_runs_on_the_node_of_its_partition(db: Database) -> None:
    done = hops(db, "first")
    assert len(done) == 3 * 2 * 4
    check_nodes(db, done)
    assert len({hop["node"] for hop in done}) == 2


def check_nodes(db: Database, done: Sequence[dict[str, Any]]) -> None:
    where = places(db.connection, {hop["part_id"] for hop in done})
    assert all(h["node"] in where[h["part_id"]] for h in done if h["role"] == "train")
    assert {hop["node"] for hop in done} <= frozenset().union(*where.values())


def test_the_held_out_slice_is_looked_at_on_any_node(db: Database, one_server: Database) -> None:
    """By a worker of each node on purpose: the driver takes whichever is idle."""
    nodes = keys_of_nodes(db.connection)
    (held,) = db.sql(
        "SELECT p.part_id FROM mmdb.partition p JOIN mmdb.dataset d "
        "ON d.dataset_id = p.dataset_id WHERE d.name = 'd' AND p.role = 'validation'"
    )
    for one in (db, one_server):
        create(one, "validated", epochs=1)
    one_server.run("validated").train(workers=1)
    found = {}
    for k, node in enumerate(sorted(nodes)):
        worker = CitusWorker(f"looks-{k}", url_of(db), node)
        worker.open()
        (row,) = db.sql(
            "SELECT c.candidate_id, r.dataset_id FROM mmdb.candidate c JOIN mmdb.run r "
            f"ON r.run_id = c.run_id WHERE r.name = 'validated' AND c.ordinal = {k}"
        )
        part = db.sql(
            "SELECT part_id FROM mmdb.partition WHERE role = 'train' "
            f"AND dataset_id = {row['dataset_id']} ORDER BY ordinal"
        )
        for ordinal in visit_order(7, k, 0, len(part)):
            db.sql(HOP, {"part_id": part[ordinal]["part_id"], **row})
        asked = HopOrder(
            part_id=held["part_id"], candidate_id=row["candidate_id"], epoch=0, at=nodes[node]
        )
        (done,) = worker.do(asked)
        assert done["node"] == node
        assert worker.do(asked)[0]["total_s"] == done["total_s"]  # it is not done again
        worker.close()
        found[k] = done["objective"]
    theirs = hops(one_server, "validated")
    assert len(set(found)) == 2
    assert found == {
        h["candidate"]: h["objective"]
        for h in theirs
        if h["role"] == "validation" and h["candidate"] in found
    }


def test_no_train_hop_runs_on_another_node_than_its_partition(
    db: Database, by_hand: dict[str, int]
) -> None:
    nodes = keys_of_nodes(db.connection)
    where = places(db.connection, [by_hand["part_id"]])[by_hand["part_id"]]
    (other,) = nodes.keys() - where
    part_id, candidate_id = by_hand["part_id"], by_hand["candidate_id"]
    order = HopOrder(part_id=part_id, candidate_id=candidate_id, epoch=0, at=nodes[other])
    with pytest.raises(RanOnCoordinator, match=f"was to run on {other}"):
        db.sql(
            "SELECT * FROM mmdb.run_order(%(part_id)s, %(detail)s::jsonb)",
            {"part_id": nodes[other], "detail": to_json(order)},
        )
    assert not hops(db, "by-hand")


@pytest.mark.parametrize("split", [{"test": 0.1}, {"validation": 0}, {}])
def test_partitions_to_train_on_lie_evenly_whatever_is_held_out(
    db: Database, split: dict[str, float]
) -> None:
    query = "SELECT i AS a, i AS y FROM generate_series(1, 90) AS g (i)"
    name = "-".join(("even", *split))
    db.create_dataset(name, query, label="y", partitions=4, options={"split": split})
    rows = db.sql(
        "SELECT p.part_id FROM mmdb.partition p JOIN mmdb.dataset d "
        f"ON d.dataset_id = p.dataset_id WHERE d.name = '{name}' AND p.role = 'train'"
    )
    where = places(db.connection, [row["part_id"] for row in rows])
    assert sorted(Counter(where.values()).values()) == [2, 2]


def test_each_worker_keeps_to_its_node_and_its_name(db: Database) -> None:
    nodes = sorted(keys_of_nodes(db.connection))
    pairs = {(hop["worker"], hop["node"]) for hop in hops(db, "first")}
    dealt = {(f"mmdb worker {k}", nodes[k % 2]) for k in range(3)}
    assert pairs <= dealt
    assert {node for _, node in pairs} == set(nodes)


def test_the_states_are_those_of_one_postgresql(
    db: Database, expected: list[tuple[int, int, bytes]]
) -> None:
    assert states(db, "first") == expected


def test_what_is_of_no_use_any_more_is_swept_from_all_nodes(db: Database) -> None:
    assert count(db, "checkpoint", "first") <= 3 * 2  # the last, and the best


@pytest.mark.parametrize("strategy", ["task", "model_average", "data_parallel"])
@pytest.mark.parametrize("dataset", ["d", "whole"])
def test_each_strategy_leaves_the_states_of_one_postgresql(
    db: Database, one_server: Database, strategy: str, dataset: str
) -> None:
    run = f"{strategy}-{dataset}"
    for one in (db, one_server):
        create(one, run, strategy=strategy, dataset=dataset, epochs=3).train(workers=3)
    assert states(db, run) == states(one_server, run)
    assert merges(db, run) == merges(one_server, run)
    done = hops(db, run)
    if strategy != "data_parallel":  # a round's rows name the worker of its first rank
        check_nodes(db, done)
    assert len({hop["node"] for hop in done}) == 2
    assert count(db, "checkpoint", run) <= 3 * 2
    for hop in done:  # what was on its way is swept from the nodes
        place = {"part_id": hop["part_id"], "candidate_id": hop["candidate_id"]}
        place["state_hash"] = hop["state_out"]
        assert not merges(db, run) or not db.connection.rows(load("nodes").read_in_flight, **place)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("dataset", ["d", "whole"])
def test_stacks_leave_the_states_of_one_postgresql(
    db: Database, one_server: Database, dataset: str, workers: int
) -> None:
    run, space = f"stacked-{dataset}-{workers}", {"lr": [0.05, 0.02, 0.01, 0.005]}
    for one in (db, one_server):
        one.create_run(
            run, dataset=dataset, architecture=MLP, search={"space": space}, epochs=3, seed=7,
            options={"stack": 4, "order": "fixed"},
        ).train(workers=workers)  # fmt: skip
    assert states(db, run) == states(one_server, run)
    check_nodes(db, hops(db, run))
    assert count(db, "checkpoint", run) <= 4 * 2


def test_an_epoch_is_averaged_by_hand(db: Database, one_server: Database) -> None:
    for one in (db, one_server):
        create(one, "averaged-by-hand", strategy="model_average", dataset="whole", epochs=1)
        (row,) = one.sql(
            "SELECT candidate_id FROM mmdb.leaderboard WHERE run = 'averaged-by-hand' "
            "ORDER BY candidate_id LIMIT 1"
        )
        for part in one.sql(
            "SELECT part_id FROM mmdb.partition p JOIN mmdb.dataset d "
            "ON d.dataset_id = p.dataset_id WHERE d.name = 'whole'"
        ):
            one.sql(HOP, {**row, **part})
        one.sql("SELECT * FROM mmdb.merge_epoch(%(candidate_id)s, 0)", row)
    assert merges(db, "averaged-by-hand") == merges(one_server, "averaged-by-hand")


def merges(db: Database, run: str) -> list[tuple[int, int, bytes]]:
    """Return the states that a run's epochs were merged to."""
    rows = db.sql(
        "SELECT c.ordinal AS candidate, m.epoch, m.state_out FROM mmdb.merge m "
        "JOIN mmdb.candidate c ON c.candidate_id = m.candidate_id "
        "JOIN mmdb.run r ON r.run_id = c.run_id WHERE r.name = %(run)s ORDER BY 1, 2",
        {"run": run},
    )
    return [(row["candidate"], row["epoch"], bytes(row["state_out"])) for row in rows]


def test_a_run_goes_on_when_a_partition_moves_to_another_node(
    db: Database, expected: list[tuple[int, int, bytes]]
) -> None:
    create(db, "moved")
    with psycopg.connect(url_of(db), autocommit=True) as connection:
        mover = threading.Thread(target=move_once, args=(connection,))
        mover.start()
        db.run("moved").train(workers=2)
        mover.join()
    assert states(db, "moved") == expected
    nodes: dict[int, set[str]] = {}
    for hop in hops(db, "moved"):
        nodes.setdefault(hop["part_id"], set()).add(hop["node"])
    assert max(map(len, nodes.values())) == 2


def move_once(connection: psycopg.Connection) -> None:
    """Move the first train partition to the other node as soon as the run has done a hop on it."""
    query = "SELECT part_id FROM mmdb.partition WHERE role = 'train' ORDER BY part_id LIMIT 1"
    (part_id,) = connection.execute(query).fetchall()[0]
    done = (
        "SELECT count(*) FROM mmdb.hop h JOIN mmdb.candidate c ON c.candidate_id = h.candidate_id "
        "JOIN mmdb.run r ON r.run_id = c.run_id WHERE r.name = 'moved' AND h.part_id = %s"
    )
    while connection.execute(done, (part_id,)).fetchall() == [(0,)]:
        time.sleep(0.02)
    connection.execute(
        "SELECT citus_move_shard_placement(p.shardid, n.nodename, n.nodeport, o.nodename, "
        "o.nodeport, 'block_writes') FROM pg_dist_placement p JOIN pg_dist_node n "
        "ON n.groupid = p.groupid JOIN pg_dist_node o ON o.groupid <> n.groupid AND o.groupid > 0 "
        "WHERE p.shardid = get_shard_id_for_distribution_column('mmdb.hop', %s::bigint)",
        (part_id,),
    )


def test_a_run_goes_on_at_another_address_that_its_workers_know_of_first(
    db: Database, expected: list[tuple[int, int, bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The driver would look later.
    monkeypatch.setattr("mmdb.train.drive.cluster_ledger.LOOK_S", 60.0)
    connection = db.connection
    assert isinstance(connection, PostgresConnection)
    create(db, "readdressed")
    serial = itertools.count()

    def workers_on(node: str) -> Sequence[PoolWorker]:
        return workers_of(connection, 1, name=f"w{next(serial)}", nodes=[node])

    driver = Driver(connection, workers_on=workers_on)
    driver.add_run("readdressed")
    before = sorted(keys_of_nodes(connection))
    with addressed(connection, before[0], "localhost"):
        for node in before:  # one of them is none any more
            for worker in workers_on(node):
                driver.add_worker(worker)
        driver.drive()
    assert isinstance(driver.outcomes["readdressed"], Summary)
    assert states(db, "readdressed") == expected


@contextmanager
def addressed(connection: PostgresConnection, node: str, host: str) -> Iterator[None]:
    """Let a node have another address."""
    before, _, port = node.rpartition(":")
    update = (
        "SELECT citus_update_node(nodeid, %(after)s, nodeport) FROM pg_dist_node "
        "WHERE nodename = %(before)s AND nodeport = %(port)s"
    )
    connection.select(update, {"before": before, "after": host, "port": int(port)})
    try:
        yield
    finally:
        connection.select(update, {"before": host, "after": before, "port": int(port)})


def test_hops_run_in_the_servers_alone(db: Database) -> None:
    assert isinstance(db.connection, PostgresConnection)
    with pytest.raises(InvalidOption, match="in the servers"):
        workers_of(db.connection, 2, mode="client")


# -- hops by hand --------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        f"{HOP} WHERE loss > 0",
        f"WITH t AS ({HOP}) SELECT * FROM t",
        HOP.replace("%(part_id)s", "(SELECT %(part_id)s)"),
    ],
)
def test_a_hop_that_is_not_handed_to_its_node_is_an_error(
    db: Database, by_hand: dict[str, int], statement: str
) -> None:
    with pytest.raises(RanOnCoordinator, match="was to run on"):
        db.sql(statement, by_hand)
    assert not hops(db, "by-hand")


def test_a_hop_in_a_transaction_block_is_an_error(db: Database, by_hand: dict[str, int]) -> None:
    with pytest.raises(RanOnCoordinator), db.connection.transaction():
        db.sql(HOP, by_hand)
    assert not hops(db, "by-hand")


def test_a_candidate_is_locked_on_all_nodes(db: Database, by_hand: dict[str, int]) -> None:
    key = by_hand["candidate_id"]
    with psycopg.connect(url_of(db)) as other:
        assert other.execute(load("nodes").lock_hop.sql, {"key": key}).fetchone() == (True,)
        with pytest.raises(CandidateBusy):
            db.sql(HOP, by_hand)
        other.rollback()
    (row,) = db.sql(HOP, by_hand)
    assert row["node"] in places(db.connection, [by_hand["part_id"]])[by_hand["part_id"]]
    assert len(hops(db, "by-hand")) == 1


def test_a_hop_by_hand_and_a_driver_exclude_each_other(db: Database) -> None:
    place = place_of_first_hop(db, "either")
    (row,) = db.sql("SELECT run_id FROM mmdb.run WHERE name = 'either'")
    with psycopg.connect(url_of(db)) as other:
        driver = load("locks").hold_run.sql
        assert other.execute(driver, {"key": row["run_id"]}).fetchone() == (True,)
        with pytest.raises(CandidateBusy):
            db.sql(HOP, place)
        other.rollback()
        by_hand = load("nodes").share_run.sql
        assert other.execute(by_hand, {"key": row["run_id"]}).fetchone() == (True,)
        with pytest.raises(RunBusy):
            db.run("either").train(workers=2)
    assert not hops(db, "either")


def test_a_hop_whose_driver_has_gone_records_nothing(db: Database) -> None:
    place = place_of_first_hop(db, "orphaned")
    where = places(db.connection, [place["part_id"]])[place["part_id"]]
    worker = CitusWorker("orphan", url_of(db), min(where))
    worker.open()
    with psycopg.connect(url_of(db)) as driver:
        hold = load("nodes").hold_session.sql
        assert driver.execute(hold, {"holder": 5}).fetchone() == (True,)
        with pytest.raises(WorkerDragged, match="taken over"):
            worker.do(HopOrder(**place, epoch=0, holders=(5, 6)))
        assert not hops(db, "orphaned")
        worker.do(HopOrder(**place, epoch=0, holders=(5,)))
    assert len(hops(db, "orphaned")) == 1
    worker.close()


@pytest.mark.parametrize(
    "detail",
    ["[]", "{}", '{"part_id": "x", "candidate_id": 1, "epoch": 0}', '{"part_id": 1, "past": 3}'],
)
def test_an_order_that_no_driver_made_is_refused(db: Database, detail: str) -> None:
    with pytest.raises(InvalidOption):
        db.sql("SELECT * FROM mmdb.run_order(1, %(detail)s::jsonb)", {"detail": detail})


# -- nodes ---------------------------------------------------------------------------


def test_each_node_says_how_many_processors_it_has(db: Database) -> None:
    assert isinstance(db.connection, PostgresConnection)
    found = processors(db.connection)
    assert set(found) == set(keys_of_nodes(db.connection))
    assert min(found.values()) >= 1


def test_a_worker_of_a_node_that_is_none_gets_no_session(db: Database) -> None:
    worker = CitusWorker("lost", url_of(db), "nowhere:1")
    with pytest.raises(NodeLost, match="holds no partitions"):
        worker.open()
    worker.close()


def test_a_hop_that_its_worker_has_given_up_is_not_held_any_more(
    db: Database, by_hand: dict[str, int]
) -> None:
    where = places(db.connection, [by_hand["part_id"]])[by_hand["part_id"]]
    worker = CitusWorker("giving up", url_of(db), min(where))
    order = HopOrder(part_id=by_hand["part_id"], candidate_id=by_hand["candidate_id"], epoch=99)
    worker.open()
    assert holders(db, "mmdb giving up") == 1
    with pytest.raises(OutOfTurn):
        worker.do(order)
    assert holders(db, "mmdb giving up") == 0
    with pytest.raises(OutOfTurn):  # the session is as good as before
        worker.do(order)
    worker.close()


def holders(db: Database, session: str) -> int:
    """Return by how many numbers a session may be named to its hops."""
    (row,) = db.sql(
        "SELECT count(*) AS n FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
        "WHERE l.classid = 1835889768 AND a.application_name = %(session)s",
        {"session": session},
    )
    return int(row["n"])


def test_an_error_of_a_node_is_told_from_the_end_of_a_session(db: Database) -> None:
    assert isinstance(db.connection, PostgresConnection) and db.connection.on_citus
    with pytest.raises(NodeLost):
        db.sql("DO $$ BEGIN RAISE 'gone' USING ERRCODE = '08006'; END $$")


def test_a_state_is_read_and_dropped_on_the_node_that_has_it(
    db: Database, by_hand: dict[str, int]
) -> None:
    db.sql(HOP, by_hand)  # again, it changes nothing
    (last,) = db.sql(
        "SELECT h.part_id, h.candidate_id, h.state_out FROM mmdb.hop h JOIN mmdb.candidate c "
        "ON c.candidate_id = h.candidate_id JOIN mmdb.run r ON r.run_id = c.run_id "
        "WHERE r.name = 'by-hand'"
    )
    place = {"candidate_id": last["candidate_id"], "part_id": last["part_id"]}
    place["state_hash"] = bytes(last["state_out"])
    chunks = db.connection.rows(load("nodes").read_in_flight, **place)
    state = b"".join(bytes(row["data"]) for row in chunks)
    assert blake3(state).digest() == place["state_hash"]
    assert db.connection.rows(load("nodes").drop_state, **place) == [{"dropped": True}]
    assert not db.connection.rows(load("nodes").read_in_flight, **place)


def state(part_id: int, state_out: str, node: str = "a:1") -> dict[str, Any]:
    """Return the row of a hop, as far as a sweeper looks at it."""
    return {"candidate_id": 77, "part_id": part_id, "state_out": state_out, "node": node}


def is_sweeping() -> bool:
    return any(thread.name == SWEEPER for thread in threading.enumerate())


def test_a_node_is_told_of_states_that_are_of_no_use_with_its_next_hop(db: Database) -> None:
    sweeper = Sweeper(url_of(db))
    sweeper.hop_done(state(1, "aa"))
    sweeper.hop_done(state(1, "bb"))  # the hop itself has deleted what was there
    assert not sweeper.useless_at("a:1")
    sweeper.hop_done(state(2, "cc", "b:2"))
    assert not sweeper.useless_at("b:2")
    (useless,) = sweeper.useless_at("a:1")
    assert useless.key == (77, "bb") and not sweeper.useless_at("a:1")
    assert not is_sweeping()
    sweeper.drop([useless])  # that hop has failed
    assert is_sweeping()
    sweeper.close()
    assert not is_sweeping()


def test_a_node_drops_what_its_order_names(db: Database) -> None:
    place = place_of_first_hop(db, "dropping")
    db.sql(HOP, place)
    (last,) = hops(db, "dropping")
    state_hash = bytes(last["state_out"])
    key = {**place, "state_hash": state_hash}
    read = load("nodes").read_in_flight
    assert db.connection.rows(read, **key)
    useless = ((place["candidate_id"], state_hash.hex()),)
    worker = CitusWorker("dropping", url_of(db), last["node"])
    worker.open()
    worker.do(HopOrder(**place, epoch=0, useless=useless))  # the hop itself is done
    worker.close()
    assert not db.connection.rows(read, **key)


def test_a_sweeper_goes_on_after_an_error_that_nobody_expected(
    db: Database, caplog: pytest.LogCaptureFixture
) -> None:
    sweeper = Sweeper(url_of(db))
    for part_id in (1, 2, 3):
        sweeper.hop_done(state(part_id, "no hash"))
    sweeper.close()
    assert [record.name for record in caplog.records] == ["mmdb.train.drive.cleanup"] * 2
    assert "ValueError" in caplog.text
