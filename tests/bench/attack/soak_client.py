"""`python -m tests.bench.attack.soak_client URL SEED`: a session that does whatever comes.

It says each operation and what it came to, `operation ok` or `operation MM...`, and goes on until
it or its parent is ended. An error that is not mmdb's ends it with a traceback.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from typing import Any

from psycopg.conninfo import conninfo_to_dict

import mmdb
from mmdb.api import Database
from tests.teams import KEYED, QUERY, module

SPACE = {"space": {"lr": [0.1, 0.05]}}
NAMES = 4
#: Operations that are drawn more often than once.
OFTEN = {"create_dataset": 6, "create_run": 8, "train": 8, "hop": 8, "save": 4, "save_candidate": 4}


class Worker:
    """Random operations on few names, so that sessions meet."""

    def __init__(self, db: Database, source: random.Random, team: str) -> None:
        self._db, self._source, self._team = db, source, team

    def operations(self) -> dict[str, Callable[[], Any]]:
        """Return what a trainer does, by name."""
        return {
            "create_dataset": self.create_dataset,
            "create_run": self.create_run,
            "train": lambda: self._db.run(self._name("run")).train(workers=1),
            "hop": self.hop,
            "save": self.save,
            "save_candidate": self.save_candidate,
            "predict": lambda: self._db.predict(self._name("best"), [0.5]),
            "predict_query": lambda: self._db.predict_query(self._name("best"), KEYED),
            "recover": lambda: self._db.recover(self._name("model")),
            "share_model": lambda: self._db.share_model(
                self._name("model"), "bob", shared=self._source.random() < 0.5
            ),
            "share_dataset": lambda: self._db.share_dataset(self._name("data"), "bob"),
            "set_alias": lambda: self._db.set_alias(self._name("model"), "prod"),
            "drop_model": lambda: self._db.drop_model(self._name("model") + "@1"),
            "drop_run": lambda: self._db.drop_run(self._name("run")),
            "drop_dataset": lambda: self._db.drop_dataset(self._name("data"), force=True),
        }

    def guard_operations(self) -> dict[str, Callable[[], Any]]:
        """Return what an admin does."""
        return {
            "gc": lambda: self._db.gc(dry_run=False, grace="0 s"),
            "gc_dry": lambda: self._db.gc(),
            "views": lambda: self._db.sql("SELECT * FROM mmdb.storage_overview"),
        }

    def _name(self, kind: str) -> str:
        return f"{kind}_{self._team}_{self._source.randrange(NAMES)}"

    def create_dataset(self) -> None:
        self._db.create_dataset(self._name("data"), QUERY, partitions=2)

    def create_run(self) -> None:
        given = {"architecture": "linear", "search": SPACE, "epochs": 2}
        self._db.create_run(self._name("run"), dataset=self._name("data"), **given)  # type: ignore[arg-type]

    def hop(self) -> None:
        found = self._db.sql(
            "SELECT p.part_id, o.candidate_id FROM mmdb.open_candidate AS o "
            "JOIN mmdb.run_progress AS r USING (run) "
            "JOIN mmdb.partition_overview AS p USING (dataset) WHERE p.role = 'train'"
        )
        if found:
            row = self._source.choice(found)
            self._db.sql(
                "SELECT mmdb.train_hop(%(part_id)s::bigint, %(candidate_id)s::bigint)", row
            )

    def save(self) -> None:
        name, made = self._name("model"), module(self._source.randrange(100))
        parent = name if self._source.random() < 0.5 else None
        self._db.save(name, made, parent=parent)

    def save_candidate(self) -> None:
        board = self._db.run(self._name("run")).leaderboard()
        if board:
            self._db.save_candidate(board[0]["candidate_id"], self._name("best"))


def work(url: str, source: random.Random) -> None:
    """Do one thing after another, over a new session where one was lost, while its parent lives."""
    parent = os.getppid()
    while os.getppid() == parent:
        try:
            with mmdb.connect(url) as db:
                role = str(conninfo_to_dict(url)["user"])
                worker = Worker(db, source, "b" if role == "bob" else "a")
                todo = worker.guard_operations() if role == "guard" else worker.operations()
                weights = [OFTEN.get(name, 1) for name in todo]
                while True:
                    (name,) = source.choices(list(todo), weights)
                    try:
                        todo[name]()
                        print(name, "ok", flush=True)
                    except mmdb.MmdbError as error:
                        print(name, error.sqlstate, error.message[:200], flush=True)
                        if not db.connection.alive():  # type: ignore[union-attr]
                            break
        except mmdb.MmdbError as error:
            print("connect", error.sqlstate, error.message[:200], flush=True)


if __name__ == "__main__":
    work(sys.argv[1], random.Random(sys.argv[2]))
