"""What catches more errors than it knows lets pass those that are for the caller, too."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from mmdb.errors import (
    Cancelled,
    ConnectionLost,
    InvalidOption,
    NodeLost,
    ServerCrashed,
    stops_the_caller,
)

PACKAGE = Path(__file__).resolve().parents[2] / "mmdb"
#: All that a server can reach.
FILES = [
    file
    for file in sorted(PACKAGE.rglob("*.py"))
    if file.relative_to(PACKAGE).parts[0] not in {"bench", "cli", "report", "standards", "ui"}
]
#: A cancel is one of each of these.
BROAD = {"Exception", "BaseException", "MmdbError", "EngineError", "Error", "SPIError"}
#: Handlers that pass an error on by other means than raising it, or whose work is to go on over a
#: session of their own where that was lost.
KEEPS = {
    # raise it as PostgreSQL's, or keep it for the thread that waits, which raises it
    "server/backend.py:exposed.body",
    "server/apart.py:ServerCall.run",
    "plan/auto_strategy.py:_within.body",
    "plan/calibration.py:_Working.run",
    "train/drive/worker_process.py:Serving.run",
    # answer it to another process, or thread, which heeds it
    "plan/profile/measurers.py:main",
    "train/drive/child.py:main",
    "train/drive/worker.py:WorkerThread._open",
    "train/drive/worker.py:WorkerThread._do",
    # end the one run that it met with it as that run's outcome, which `train` raises
    "train/drive/driver.py:Driver._attempt",
    "train/drive/driver.py:Driver._advance",
    "train/drive/driver.py:Driver._assign_next",
    "train/drive/driver.py:Driver._conclude",
    "train/drive/driver.py:Driver._end",
    # come back over a new session, or ask another server
    "db/postgres.py:PostgresConnection.alive",
    "db/replicas.py:Replicas._try",
    "train/drive/cleanup.py:Janitor._run",
    "train/drive/cleanup.py:Sweeper._try",
    "train/drive/worker_process.py:WorkerProcess._dispatch",
    "train/drive/slot_registry.py:Pulse.run",
    "train/drive/slot_registry.py:Pulse._revive",
    "train/drive/worker_process.py:Serving._turn",
    "train/drive/schedule_worker.py:ScheduleServer._look",
    # clean up after what is raised already, or in another thread than the statement's
    "db/duck.py:DuckConnection._registered",
    "db/duck.py:DuckConnection.merge",
    "db/duck.py:DuckConnection.close",
    "db/postgres.py:PostgresConnection.cancel",
    "db/postgres.py:PostgresConnection.sever",
    "train/drive/worker_process.py:WorkerProcess.run",
    "train/drive/schedule_worker.py:ScheduleServer.run",
    "train/drive/schedule_worker.py:_Running.run",
    "train/drive/server_worker.py:CitusWorker._disown",
    # say it as a check that failed
    "store/verify.py:verify_at",
}


class Foreign(Exception):
    """An error of a module that mmdb's errors do not know."""

    def __init__(self, sqlstate: str | None) -> None:
        self.sqlstate = sqlstate


STOPPING = [
    Cancelled(),
    ConnectionLost(),
    ServerCrashed(),
    psycopg.errors.QueryCanceled(),
    psycopg.errors.AdminShutdown(),
    psycopg.errors.ConnectionException(),
    psycopg.errors.IdleInTransactionSessionTimeout(),
    Foreign("57014"),
]
OTHERS = [
    NodeLost(),  # the session with the coordinator goes on
    InvalidOption(),
    psycopg.errors.LockNotAvailable(),
    psycopg.errors.UndefinedTable(),
    Foreign(None),
    SystemExit(1),  # a user's module may raise it
]


@pytest.mark.parametrize("error", STOPPING, ids=repr)
def test_a_cancel_and_a_lost_connection_stop_the_caller(error: BaseException) -> None:
    assert stops_the_caller(error)


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_other_errors_are_for_whoever_catches_them(error: BaseException) -> None:
    assert not stops_the_caller(error)


def broad_names(node: ast.expr | None) -> set[str]:
    """Return what a handler catches of `BROAD`."""
    if node is None:
        return {"BaseException"}
    parts = node.elts if isinstance(node, ast.Tuple) else [node]
    names = {part.attr if isinstance(part, ast.Attribute) else ast.unparse(part) for part in parts}
    return names & BROAD


def lets_pass(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler always raises, or asks `stops_the_caller` before all else."""
    if any(isinstance(one, ast.Raise) for one in handler.body):
        return True
    return any(
        isinstance(one, ast.If)
        and "stops_the_caller(" in ast.unparse(one.test)
        and isinstance(one.body[-1], ast.Raise)
        for one in handler.body
    )


def swallowing(tree: ast.AST, place: str = "") -> Iterator[str]:
    """Yield the function, by its path, of each handler that may swallow what stops the caller."""
    for node in ast.iter_child_nodes(tree):
        inner = place
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            inner = f"{place}.{node.name}".strip(".")
        if isinstance(node, ast.ExceptHandler) and broad_names(node.type) and not lets_pass(node):
            yield inner
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "suppress":
            yield from (inner for one in node.args if broad_names(one))
        yield from swallowing(node, inner)


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(PACKAGE)))
def test_nothing_swallows_what_is_for_the_caller(file: Path) -> None:
    name = str(file.relative_to(PACKAGE))
    found = {f"{name}:{place}" for place in swallowing(ast.parse(file.read_text()))}
    assert found == {one for one in KEEPS if one.startswith(f"{name}:")}


def test_the_imports_of_sql_functions_load_no_torch() -> None:
    """They run in PostgreSQL's thread, which hears no cancel until the call itself begins."""
    bodies = "".join(file.read_text() for file in (PACKAGE.parent / "udf").glob("*.sql"))
    modules = sorted(set(re.findall(r"^from (mmdb\.[\w.]+) import", bodies, re.MULTILINE)))
    assert len(modules) > 5
    program = f"import sys, {', '.join(modules)}; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)
    assert said.stdout.strip() == b"False"
