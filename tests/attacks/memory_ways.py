"""Ways in which a trainer takes memory, by functions of mmdb.

Each ends in an error of mmdb's or does its work within what a call may take; no other session is
ended, and its own goes on.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import psycopg

import mmdb
from mmdb.db.install import install
from tests.cluster import Cluster

#: Of the server.
MEMORY_BYTES = 4 << 30
#: A way that takes longer is broken off: it is no lack of memory.
TIMEOUT_S = 30
#: How PostgreSQL itself says that a value is too large, or that it was broken off.
OWN_STATES = ("53200", "54000", "57014")

TABLES = (
    "CREATE TABLE points AS SELECT i AS id, (i / 7.0)::real AS a, i % 2 AS y"
    " FROM generate_series(1, 4000) AS g (i)",
    "GRANT SELECT ON points TO PUBLIC",
)
DATASETS: dict[str, tuple[str, dict[str, Any]]] = {
    "d": ("SELECT a, y FROM points", {}),
    "few": ("SELECT a, y FROM points WHERE id <= 64", {}),
    "pictures": (
        "SELECT array_fill(a, ARRAY[3072]) AS x, y FROM points WHERE id <= 400",
        {"shape": [3, 32, 32]},
    ),
    "words": (
        "SELECT 'word ' || id % 3900 AS w, y FROM points",
        {"max_categories": 20_000, "transforms": {"w": "one_hot"}},
    ),
}

_FIRST = """
    SELECT min(p.part_id), min(c.candidate_id)
    FROM mmdb.run AS r
    JOIN mmdb.candidate AS c USING (run_id)
    JOIN mmdb.partition AS p USING (dataset_id)
    WHERE r.name = %s AND p.role = 'train'
"""


@dataclass(frozen=True, slots=True)
class Way:
    """A statement of a trainer's.

    Attributes:
        run: that it makes, of which a hop comes next.
    """

    name: str
    statement: str
    run: str = ""


def _network(name: str, architecture: str | dict[str, Any], data: str = "d", **more: Any) -> Way:
    """Return the way that makes a run, and does a hop of it if that succeeds."""
    text = architecture if isinstance(architecture, str) else json.dumps(architecture)
    given = "".join(f", {key} => {_literal(value)}" for key, value in more.items())
    run = f"run-{name.replace(' ', '-')}"
    called = f"mmdb.create_run({_literal(run)}, '{data}', {_literal(text)}{given})"
    return Way(name, f"SELECT {called}", run)


def _literal(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return "'" + text.replace("'", "''") + "'"


def _layers(*layers: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    named = [{"name": f"l{k}", "op": op, "args": args} for k, (op, args) in enumerate(layers)]
    return {"layers": named}


def _search(**values: list[Any]) -> dict[str, Any]:
    return {"space": values}


def _dataset(name: str, query: str, **more: Any) -> Way:
    given = "".join(f", {key} => {_literal(value)}" for key, value in more.items())
    data = _literal(f"data-{name.replace(' ', '-')}")
    return Way(name, f"SELECT mmdb.create_dataset({data}, {_literal(query)}{given})")


_FLAT = _layers(
    ("Linear", {"out_features": 4096}),
    ("reshape", {"shape": [1, 64, 64]}),
    ("Conv2d", {"out_channels": 4096, "kernel_size": 3, "padding": 1}),
    ("ReLU", {}),
    ("Flatten", {}),
    ("Linear", {"out_features": "$outputs"}),
)

WAYS = (
    _network("weights of almost a billion", "mlp(hidden=[31000,31000])"),
    _network("weights of a quarter of a billion", "mlp(hidden=[16000,16000])"),
    _network("weights that fit once", "mlp(hidden=[9000,9000,9000])"),
    _network("moments of each weight", "mlp(hidden=[12000,12000])",
             search=_search(optimizer=[{"name": "adam", "amsgrad": True}])),
    _network("weights without moments", "mlp(hidden=[9000,9000])", "few",
             search=_search(optimizer=["sgd"])),
    _network("a hundred layers", "mlp(hidden=64,depth=100)"),
    _network("channels", "cnn(width=7000)", "pictures"),
    _network("channels that double", "cnn(width=512,depth=5)", "pictures"),
    _network("blocks", "resnet(width=256,blocks=8)", "pictures"),
    _network("wide blocks", "resnet(width=1200)", "pictures"),
    _network("a wide transformer", "transformer(d_model=6000)"),
    _network("a deep transformer", "transformer(d_model=2048,layers=12)"),
    _network("a layer graph of two matrices", _layers(
        ("Linear", {"out_features": 22000}), ("Linear", {"out_features": 40000}),
        ("Linear", {"out_features": "$outputs"}))),
    _network("ten thousand layers", _layers(
        *[("Linear", {"out_features": 200})] * 9999, ("Linear", {"out_features": "$outputs"}))),
    _network("activations of a batch", _FLAT, search=_search(batch_size=[100000])),
    _network("activations of a large batch and a wide net", "mlp(hidden=[4000,4000])",
             search=_search(batch_size=[2000000000])),
    _network("batches that are added up", "mlp(hidden=[4000,4000])",
             search=_search(accumulate=[2000000000])),
    _network("a grid", "linear", search=_search(
        lr=[k / 1000 for k in range(1, 1000)], weight_decay=[k / 1000 for k in range(1000)],
        batch_size=list(range(1, 1000)))),
    _network("random candidates", "linear",
             search={"method": "random", "trials": 2000000000, "space": {"lr": [0.1, 0.2]}}),
    _network("epochs", "linear", epochs="2147483647"),
    _network("a run by parents", "mlp(hidden=[9000,9000,9000])", warm_start="auto"),
    _network("several workers", "mlp(hidden=[9000,9000,9000])", strategy="data_parallel",
             options={"group": 2}),
    _network("one number for each word", "mlp(hidden=[60000])", "words"),
    _dataset("an array of a hundred million",
             "SELECT array_fill(1.0::real, array[100000000]) AS x, 1 AS y"),
    _dataset("arrays as large as there are",
             "SELECT array_fill(1.0::real, array[130000000]) AS x, g % 2 AS y"
             " FROM generate_series(1, 9) AS t (g)"),
    _dataset("arrays behind a small one",
             "SELECT array_fill(1.0::real, array[CASE g WHEN 1 THEN 1 ELSE 50000000 END]) AS x,"
             " g % 2 AS y FROM generate_series(1, 99) AS t (g)"),
    _dataset("several arrays a row", "SELECT " + ", ".join(
        f"array_fill(1.0::real, array[20000000]) AS x{k}" for k in range(12)) + ", 1 AS y"),
    _dataset("arrays of doubles", "SELECT array_fill(1.0::float8, array[60000000]) AS x, 1 AS y"),
    _dataset("a text of a gigabyte", "SELECT repeat('x', 1000000000) AS t, 1 AS y"),
    _dataset("a label of a gigabyte", "SELECT 1 AS x, repeat('x', 1000000000) AS y"),
    _dataset("long texts", "SELECT repeat('x', 20000000) || g AS t, g % 2 AS y"
             " FROM generate_series(1, 200) AS s (g)", options={"max_categories": 2000000000}),
    _dataset("bytes", "SELECT convert_to(repeat('x', 900000000), 'UTF8') AS b, 1 AS y"),
    _dataset("tokens", "SELECT repeat('x', 2000) AS t, g % 2 AS y FROM generate_series(1, 100)"
             " AS s (g)", options={"tokenize": {"t": {"function": "bytes", "length": 65536}}}),
    _dataset("texts that all differ", "SELECT repeat('x', 1000) || g AS t, g % 2 AS y"
             " FROM generate_series(1, 3000000) AS s (g)", options={"max_categories": 2000000000}),
    _dataset("partitions", "SELECT a, y FROM points", partitions="2147483647"),
    _dataset("a query of a hundred megabytes", "SELECT 1" + " + 1" * 5_000_000 + " AS a, 1 AS y"),
    _dataset("a query of many columns",
             "SELECT " + ", ".join(f"a AS a{k}" for k in range(1600)) + ", y FROM points"),
    Way("a vector to predict",
        "SELECT mmdb.predict('r', array_fill(1.0::real, array[100000000]))"),
    Way("the largest vector to predict",
        "SELECT mmdb.predict('r', array_fill(1.0::real, array[134217727]))"),
    Way("a text to predict", "SELECT mmdb.predict('r', repeat('x', 1000000000))"),
    Way("a list to predict", "SELECT mmdb.predict('r', '[' || repeat('1,', 200000000) || '1]')"),
    Way("brackets to predict", "SELECT mmdb.predict('r', repeat('[', 500000000))"),
    Way("an object to predict",
        "SELECT mmdb.predict('r', jsonb_build_object('a', repeat('1', 200000000)))"),
    Way("the name of a model", "SELECT mmdb.predict(repeat('r', 300000000), ARRAY[1.0])"),
    Way("rows to predict",
        "SELECT count(*) FROM mmdb.predict_query('r', 'SELECT g AS id, 1.0::real AS a"
        " FROM generate_series(1, 100000000) AS s (g)')"),
    Way("keys to predict",
        "SELECT count(*) FROM mmdb.predict_query('r', 'SELECT repeat(''k'', 100000000) AS id,"
        " 1.0::real AS a FROM generate_series(1, 100) AS s (g)')"),
    Way("rows to predict into a table",
        "SELECT mmdb.predict_into('r', 'SELECT g AS id, 1.0::real AS a"
        " FROM generate_series(1, 100000000) AS s (g)', 'own.predicted')"),
    Way("a shape to match",
        "SELECT count(*) FROM mmdb.match('linear', input_shape => array_fill(1, array[100000000]),"
        " outputs => 2)"),
    Way("a large shape to match",
        "SELECT count(*) FROM mmdb.match('mlp(hidden=[9000,9000,9000])', input_shape =>"
        " ARRAY[2000000], outputs => 2)"),
    Way("a shape to compare",
        "SELECT count(*) FROM mmdb.common_prefix('linear', input_shape =>"
        " array_fill(1, array[134217727]), outputs => 2, k => 2147483647)"),
    Way("numbers of candidates",
        "SELECT * FROM mmdb.train_hops(1, array_fill(1::bigint, array[100000000]))"),
    Way("numbers of partitions",
        "SELECT * FROM mmdb.train_group(array_fill(1::bigint, array[100000000]), 1, 0, '{}')"),
    Way("options",
        "SELECT mmdb.create_run('o', 'd', 'linear', options =>"
        " jsonb_build_object('x', repeat('x', 200000000)))"),
    Way("an architecture", "SELECT mmdb.create_run('o', 'd', repeat('[', 1000000000))"),
    Way("a list as an architecture",
        "SELECT mmdb.create_run('o', 'd', '{\"layers\": [' || repeat('{},', 100000000) || '{}]}')"),
    Way("a note", "SELECT mmdb.note_model('r', repeat('x', 500000000))"),
    Way("a tag", "SELECT mmdb.tag_model('r', 'k', repeat('x', 500000000))"),
    Way("numbers of a tensor",
        "SELECT count(*) FROM mmdb.tensor_values('r', 'head.weight', 0, 9223372036854775807)"),
    Way("options of a plan",
        "SELECT count(*) FROM mmdb.explain_train('r', jsonb_build_object('nodes', 2000000000,"
        " 'slots', 2000000000))"),
    Way("an entity", "SELECT count(*) FROM mmdb.lineage(repeat('model:', 100000000))"),
)  # fmt: skip


class Attack:
    """A database that a trainer takes memory of, on a server of its own.

    Args:
        server: with little memory; or, where the machine does not let it be limited, one whose
            owner says how much a call may take.
    """

    def __init__(self, server: Cluster, *, is_limited: bool) -> None:
        self._url = server.create_database("memory_attacked")
        self._server = server
        with psycopg.connect(self._url, autocommit=True) as owner:
            owner.execute("CREATE EXTENSION plpython3u")
            owner.execute("CREATE ROLE taker LOGIN PASSWORD 'x' IN ROLE pg_read_all_settings")
        install(self._url)
        with mmdb.connect(self._url) as db:
            for statement in TABLES:
                db.sql(statement)
            db.sql("GRANT mmdb_trainer TO taker")
            db.sql("CREATE SCHEMA own AUTHORIZATION taker")
            if not is_limited:
                db.sql(
                    "INSERT INTO mmdb.setting (name, value) VALUES ('memory_bytes', %(most)s)",
                    {"most": str(MEMORY_BYTES // 2)},
                )
            for name, (query, options) in DATASETS.items():
                db.create_dataset(name, query, partitions=1, options=options)
            db.create_run("r", dataset="d", architecture="linear").train(workers=1)
        self._watcher = psycopg.connect(self._url, autocommit=True)
        self._taker = self._new_taker()
        self._is_left_behind = False

    def close(self) -> None:
        """End the sessions."""
        self._watcher.close()
        self._taker.close()

    def go(self, way: Way) -> str:
        """Go a way and return how it ended: an SQLSTATE, or nothing where it did its work.

        Raises:
            psycopg.OperationalError: another session was ended.
            AssertionError: its own session was ended, or the error is none of mmdb's.
        """
        if self._is_left_behind:  # what was broken off may compute for a while
            self._taker.close()
            self._taker = self._new_taker()
        state, said = self._say(way.statement)
        if not state and way.run:
            part_id, candidate_id = self._watcher.execute(_FIRST, (way.run,)).fetchone() or (0, 0)
            state, said = self._say(f"SELECT * FROM mmdb.train_hop({part_id}, {candidate_id})")
        self._watcher.execute("SELECT 1")
        self._is_left_behind = state in ("57014", "MM410", "MM210")
        assert not self._taker.closed, f"{way.name}: the session was ended: {said}"
        assert state[:2] in ("", "MM") or state in OWN_STATES, f"{way.name}: {state} {said}"
        return state

    def _say(self, statement: str) -> tuple[str, str]:
        try:
            self._taker.execute(statement.encode())
        except psycopg.Error as error:
            return error.sqlstate or "lost", str(error)
        return "", ""

    def _new_taker(self) -> psycopg.Connection:
        url = self._url.replace(f"postgres:{self._server.password}", "taker:x", 1)
        taker = psycopg.connect(url, autocommit=True)
        taker.execute(f"SET statement_timeout = '{TIMEOUT_S}s'")
        return taker
