"""Databases as published schemas of mmdb left them: made by the mmdb of their day, and kept.

Run as a script in a checkout of that day, it makes one: tests/integration/published/README.md. So
it uses nothing but what every published mmdb has.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import mmdb

FOLDER = Path(__file__).resolve().parent / "integration" / "published"
#: The last migration of each published schema; 00 is version 0.1.
STATES = ("00", "02", "06", "08", "10", "11", "12", "15", "17", "20", "22")
#: Migrations of which no database was published yet: tests/integration/published/README.md.
UNPUBLISHED = frozenset({23, 24, 25, 26})

_TABLE = (
    "CREATE TABLE points AS SELECT i AS id, (i % 7 - 3)::real AS a, (i % 11 - 5)::real AS b,"
    " (i % 2)::integer AS y FROM generate_series(1, 48) AS g (i)"
)
_SEARCH = {"space": {"optimizer": ["adam"], "lr": [0.1, 0.01]}}
_LEADERBOARD = (
    "SELECT rank, candidate_id, accuracy FROM mmdb.leaderboard WHERE run = 'search' ORDER BY rank"
)
_HOPS = (
    "SELECT candidate_id, epoch, part_id, loss, state_out FROM mmdb.hop"
    " WHERE candidate_id <= 2 ORDER BY candidate_id, epoch, part_id"
)
_ROWS = "SELECT id, a, b FROM points WHERE id <= 5"


def unpack(archive: str, folder: Path) -> None:
    """Unpack the files of an archive, "duckdb" or "postgres", into a folder."""
    with tarfile.open(FOLDER / f"{archive}.tar.xz") as packed:
        for member in packed:
            data = packed.extractfile(member)
            assert data is not None
            (folder / Path(member.name).name).write_bytes(data.read())


def names(archive: str) -> set[str]:
    """Return the names of the files of an archive."""
    with tarfile.open(FOLDER / f"{archive}.tar.xz") as packed:
        return set(packed.getnames())


def fill(db: Any) -> None:
    """Make a table, a dataset, a trained run with its model, and a run that is not trained."""
    db.sql(_TABLE)
    db.create_dataset("points", "SELECT a, b, y FROM points", partitions=2, seed=1)
    run = db.create_run(
        "search", dataset="points", architecture="mlp", search=_SEARCH, epochs=2, seed=3
    )
    run.train(workers=1)
    db.create_run("later", dataset="points", architecture="linear", epochs=1, seed=5)


def rows(db: Any) -> dict[str, Any]:
    """Return what views and tables answer of the trained run."""
    return {
        "leaderboard": [list(row.values()) for row in db.sql(_LEADERBOARD)],
        "hops": [
            [*list(row.values())[:-1], bytes(row["state_out"]).hex()] for row in db.sql(_HOPS)
        ],
    }


def predictions(db: Any) -> list[list[Any]]:
    """Return what the model predicts for five rows."""
    found = db.predict_query("search", _ROWS)
    return [[str(r["key"]), str(r["prediction"]), r["probability"]] for r in found]


def main(number: str, folder: Path) -> None:
    """Write a database of each engine, as this mmdb makes it, and what both answer."""
    import psycopg

    from mmdb.db.install import install
    from tests.cluster import Cluster

    answers = []
    with mmdb.connect(f"duckdb:///{folder / number}.duckdb") as db:
        fill(db)
        answers.append(rows(db) | {"predictions": predictions(db)})
    with Cluster() as cluster:
        url = cluster.create_database("published")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
        install(url)
        with mmdb.connect(url) as db:
            fill(db)
            answers.append(rows(db) | {"predictions": predictions(db)})
        command: list[str | Path] = [cluster.server.bin / "pg_dump", "-d", url]
        dump = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    # Newer minor versions of pg_dump add lines that older ones of psql do not know.
    dump = re.sub(r"^\\(un)?restrict .*\n", "", dump, flags=re.MULTILINE)
    (folder / f"{number}.sql").write_text(dump)
    assert answers[0] == answers[1], "the engines differ"
    (folder / "answers.json").write_text(json.dumps(answers[0], indent=1))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
