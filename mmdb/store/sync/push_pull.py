"""Models from one database into another: push and pull.

Only what the other side lacks is sent, and as it is stored. Tensors go first, in transactions of a
bounded size; the model's row comes last, so that a copy is there as a whole or not at all. One
that was interrupted is called again and sends the rest. See docs/sync.md.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from urllib.parse import unquote

from mmdb.data.names import check_name
from mmdb.db.connection import Connection
from mmdb.db.duck import DuckConnection
from mmdb.db.install import ensure_duckdb, is_up_to_date
from mmdb.db.queries import load
from mmdb.db.url import AnyConnection, connect
from mmdb.errors import (
    ConnectionLost,
    InTransaction,
    InvalidOption,
    ModelNotFound,
    NotInstalled,
    WrongUrl,
)
from mmdb.store.files.exchange import Replay
from mmdb.store.models.model_rows import ImportOrigin, find_model, of_database
from mmdb.store.sync.exchange import CopyProgress
from mmdb.store.sync.model_copy import CopyOptions, ModelCopier

__all__ = ["CopyOptions", "CopyReport", "copy_model", "pull", "push"]

_Q = load("sync")
_Report = Callable[[int, int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyReport:
    """What a push or pull did."""

    models: tuple[str, ...]  # copied, as name@version of the target; ancestors among them
    kept: tuple[str, ...]  # that the target had
    tensors: int  # named at the target
    chunks: int
    bytes_sent: int  # of chunks and blocks, as they are stored
    bytes_skipped: int  # stored bytes of the copied models that the target had
    seconds: float


def push(
    connection: AnyConnection,
    model: str,
    *,
    to: str,
    options: CopyOptions | None = None,
    all_versions: bool = False,
    replay: Replay | None = None,
    on_progress: _Report | None = None,
) -> CopyReport:
    """Copy a model into the database of a URL.

    Args:
        model: `name` (its newest version), `name@version` or `name@alias`.
        to: a DuckDB file is made as needed.
        all_versions: of the name, oldest first.
        replay: makes the tensors of a model of which the recipe is kept.
        on_progress: called with the bytes sent and to be sent, as far as that is known.
    Raises:
        ModelNotFound
        AlreadyExists: another model has its name and version there.
        InvalidOption: the URL is that of this database. WrongUrl, NotInstalled, RightsMissing
        ConnectionLost: call again; what has arrived is not sent again.
        CorruptTensor: stored bytes are damaged; nothing of the model is visible there.
        NotReplayable: it is kept as a recipe, and neither side can do with it.
        InTransaction
    """
    with _other(connection, to, is_target=True) as target:
        return copy_model(
            connection,
            target,
            model,
            options=options,
            all_versions=all_versions,
            replay=replay,
            on_progress=on_progress,
            origin=of_database(connection.url, "push"),
        )


def pull(
    connection: AnyConnection,
    model: str,
    *,
    from_: str,
    options: CopyOptions | None = None,
    all_versions: bool = False,
    replay: Replay | None = None,
    on_progress: _Report | None = None,
) -> CopyReport:
    """Copy a model out of the database of a URL; see `push`."""
    with _other(connection, from_, is_target=False) as source:
        return copy_model(
            source,
            connection,
            model,
            options=options,
            all_versions=all_versions,
            replay=replay,
            on_progress=on_progress,
            origin=of_database(source.url, "pull"),
        )


def copy_model(
    source: Connection,
    target: Connection,
    model: str,
    *,
    options: CopyOptions | None = None,
    all_versions: bool = False,
    replay: Replay | None = None,
    on_progress: _Report | None = None,
    origin: ImportOrigin | None = None,
) -> CopyReport:
    """Copy a model between two open databases; see `push`.

    Args:
        origin: recorded at the target of every model that is copied.
    """
    started = perf_counter()
    options = options or CopyOptions()
    _check_options(options)
    for connection in (source, target):
        if connection.in_transaction:
            raise InTransaction(
                "A copy has transactions of its own.", hint="COMMIT or ROLLBACK first."
            )
    progress = CopyProgress() if on_progress is None else CopyProgress(report=on_progress)
    copier = ModelCopier(
        source=source,
        target=target,
        options=options,
        replay=replay,
        progress=progress,
        origin=origin,
    )
    if all_versions:  # a base that one difference is not worth may serve those that follow
        copier.options = replace(options, keep_differences=True)
    try:
        if all_versions:
            _copy_versions(copier, model)
        else:
            copier.copy(find_model(source, model).model_id)
    except ConnectionLost as error:
        raise type(error)(error.message, hint=_GO_ON) from error
    return CopyReport(
        models=tuple(copier.copied),
        kept=tuple(copier.kept),
        tensors=progress.tensors,
        chunks=progress.chunks,
        bytes_sent=progress.bytes,
        bytes_skipped=copier.skipped_bytes,
        seconds=perf_counter() - started,
    )


_GO_ON = "Call again: tensors that have arrived are kept there, and the rest is sent."


def _check_options(options: CopyOptions) -> None:
    if options.name is not None:
        check_name(options.name)
    for name, value, known in (
        ("version", options.version, (None, "next")),
        ("weights", options.weights, ("auto", "always", "never")),
        ("verify", options.verify, ("full", "sampled", "none")),
    ):
        if value not in known:
            choices = ", ".join(repr(choice) for choice in known)
            raise InvalidOption(f"There is no {name} {value!r}.", hint=f"Choose {choices}.")


def _copy_versions(copier: ModelCopier, name: str) -> None:
    """Copy every version of a name that the target lacks, oldest first."""
    found = copier.source.rows(_Q.list_versions, name=name)
    if not found:
        raise ModelNotFound(f"There is no model {name!r}.", hint="Give a name without a version.")
    own = copier.options.name or name
    there = {
        row["version"]: bytes(row["weights_hash"])
        for row in copier.target.rows(_Q.list_versions, name=own)
    }
    for row in found:
        is_there = there.get(row["version"]) == bytes(row["weights_hash"])
        if is_there and not copier.options.aliases:
            copier.kept.append(f"{own}@{row['version']}")
        else:
            copier.copy(row["model_id"])


# -- the other side -------------------------------------------------------------


@contextmanager
def _other(connection: AnyConnection, url: str, *, is_target: bool) -> Iterator[AnyConnection]:
    """Open the other database, with mmdb of this version in it, for the block."""
    _check_file(connection, url, is_target)
    other = connect(url, application_name="mmdb push" if is_target else "mmdb pull")
    try:
        if isinstance(other, DuckConnection):
            other.shut_in()
        if isinstance(other, DuckConnection) and is_target:
            ensure_duckdb(other)
        elif not is_up_to_date(other):
            raise NotInstalled("mmdb in the other database is of another version than this one.")
        _check_other(connection, other)
        yield other
    finally:
        other.close()


def _check_file(connection: AnyConnection, url: str, is_target: bool) -> None:
    """Raise where a URL is the file of a connection, or no file to read from."""
    path = _path(url)
    if path is None:
        return
    if isinstance(connection, DuckConnection) and connection.path != ":memory:":
        if Path(connection.path).resolve() == path.resolve():
            raise _same(url)
    if not is_target and not path.exists():
        raise WrongUrl(f"There is no file {path}.", hint="Check the path.")


def _path(url: str) -> Path | None:
    """Return the path of a DuckDB file's URL."""
    head, found, rest = url.partition("duckdb:///") if isinstance(url, str) else ("", "", "")
    return Path(unquote(rest)) if found and not head and rest not in ("", ":memory:") else None


def _check_other(connection: AnyConnection, other: AnyConnection) -> None:
    """Raise where both are sessions of one PostgreSQL database: a lock tells, by whatever URL."""
    if connection.engine != "postgres" or other.engine != "postgres":
        return
    key = secrets.randbits(31)
    if connection.try_lock("run", key):
        try:
            if not other.try_lock("run", key):
                raise _same("The other database")
        finally:
            connection.unlock("run", key)


def _same(what: str) -> InvalidOption:
    return InvalidOption(
        f"{what} is this very database.", hint="Name another database, or copy by saving again."
    )
