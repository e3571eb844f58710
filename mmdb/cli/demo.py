"""`mmdb demo`: the main job on scikit-learn's handwritten digits, end to end."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

from mmdb.api import Database, connect
from mmdb.db.check import shown
from mmdb.errors import EngineError
from mmdb.terminal import console, show_leaderboard, show_rows, training_watch

FILE = "mmdb-demo.duckdb"
SEARCH = {
    "method": "grid",
    "space": {
        "lr": [0.1, 0.01],
        "architecture.hidden": [[32], [64, 32]],
        "optimizer": [{"name": "sgd", "momentum": 0.9}, "adam"],
    },
}
QUERY = "SELECT pixels, digit FROM digits"


def run_demo(url: str | None, workers: int | None) -> None:
    """Load the digits, search over 8 candidates and show what came out.

    Args:
        url: a database that has mmdb and no table `digits`; None for a fresh DuckDB file.
    """
    if url is None:
        for leftover in (FILE, f"{FILE}.wal"):
            Path(leftover).unlink(missing_ok=True)
        url = f"duckdb:///{FILE}"
    started = perf_counter()
    with connect(url) as db:
        count = load_digits(db)
        console.print(
            f"[bold]1.[/] {count} handwritten digits in the ordinary table [cyan]digits[/]."
        )
        made = db.create_dataset("digits", QUERY, label="digit", partitions=4)
        console.print(
            f"[bold]2.[/] Dataset [cyan]{made.name}[/]: {made.rows} rows shuffled into "
            f"{made.partitions} partitions and a validation slice."
        )
        run = db.create_run(
            "digits-search", dataset="digits", architecture="mlp", search=SEARCH, epochs=5
        )
        console.print(
            "[bold]3.[/] Run [cyan]digits-search[/]: 8 candidates, "
            "5 epochs of 4 partitions and a validation."
        )
        with training_watch() as watch:
            summary = run.train(workers=workers, watch=watch)
        console.print(f"   {summary.hops} hops in {summary.seconds:.1f} s.\n")
        show_leaderboard(run.leaderboard())
        model = f"{summary.model}@{summary.version}"
        _show_predictions(db, model)
        show_rows(f"Lineage of {model}", _lineage(db, model))
    _show_next(url, model, perf_counter() - started)


def load_digits(db: Database) -> int:
    """Create the user's table `digits` (id, pixels, digit) and return its row count."""
    images, labels = read_digits()
    db.sql("CREATE TABLE digits (id integer PRIMARY KEY, pixels real[] NOT NULL, digit integer)")
    rows: list[dict[str, Any]] = [
        {"id": k, "pixels": [float(v) / 16 for v in image], "digit": int(label)}
        for k, (image, label) in enumerate(zip(images, labels, strict=True))
    ]
    postgres = db.connection.engine == "postgres"
    marks = [f"%({n})s" if postgres else f"${n}" for n in ("id", "pixels", "digit")]
    for start in range(0, len(rows), 200):
        with db.connection.transaction():
            for row in rows[start : start + 200]:
                db.sql(f"INSERT INTO digits VALUES ({', '.join(marks)})", row)
    return len(rows)


def read_digits() -> tuple[Any, Any]:
    """Return the digits: float64 images (1797, 64) from 0 to 16, and int64 labels (1797,).

    Raises:
        EngineError: scikit-learn is not installed.
    """
    try:
        from sklearn.datasets import load_digits as read
    except ImportError as error:
        raise EngineError(
            "The digits come with scikit-learn, which is not installed.",
            hint="pip install 'mmdb-learn[demo]'",
        ) from error
    images, labels = read(return_X_y=True)
    return images, labels


def _show_predictions(db: Database, model: str) -> None:
    rows = db.predict_query(model, "SELECT id, pixels FROM digits WHERE id < 5 ORDER BY id")
    truth = {r["id"]: r["digit"] for r in db.sql("SELECT id, digit FROM digits WHERE id < 5")}
    shown = [
        {
            "id": int(row["key"]),
            "prediction": row["prediction"],
            "true label": str(truth[int(row["key"])]),
            "probability": row["probability"],
        }
        for row in rows
    ]
    show_rows(f"Predictions of {model}", shown)


def _lineage(db: Database, model: str) -> list[dict[str, Any]]:
    """Return what the model came from, without its hops: 1,000 of them say little in a table."""
    return [
        {"depth": str(row["depth"])} | {name: row[name] for name in ("parent", "via", "child")}
        for row in db.lineage(f"model:{model}", hops=False)
    ]


def _show_next(url: str, model: str, seconds: float) -> None:
    secret = shown(url) != url
    where = '"$MMDB_URL"' if secret else shlex.quote(url)
    console.print(f"Done in {seconds:.1f} s. Three commands to try next:\n")
    if secret:
        console.print("  (MMDB_URL is the URL of the database, with its password)\n", style="dim")
    hops = "SELECT candidate_id, epoch, role, partition, worker, total_s FROM mmdb.hop_timeline"
    some = "SELECT id, pixels FROM digits WHERE id < 20"
    program = "mmdb" if shutil.which("mmdb") else sys.argv[0]  # make demo runs it by its path
    commands = (
        f'{program} sql "{hops} LIMIT 10" --database {where}',
        f'{program} predict {model} "{some}" --database {where}',
        f"{program} train digits-search --workers 1 --database {where}",
    )
    for command in commands:
        console.print(f"  {command}", style="cyan", soft_wrap=True, highlight=False)
