"""The first search of a session, and a later one, in databases with many models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.networks import IMAGENET, mobilenet_v2
from mmdb.bench.workload import BenchShare, bench_names
from mmdb.db.duck import DuckConnection
from mmdb.db.queries import Queries
from mmdb.db.url import AnyConnection
from mmdb.db.url import connect as open_connection
from mmdb.graph.trace.call_tracer import trace
from mmdb.graph.trace.structure import NetworkGraph
from mmdb.store.models.architectures import VERSION
from mmdb.store.parents import choose_parent

#: Models, and seconds that the first search among so many may take.
BARS = {2_500: 0.5, 100_000: 10.0}
ROUNDS = 3

_Q = Queries(Path(__file__).with_name("bench_match.sql"))


def measure(db: Database, outlines: Sequence[bytes], share: BenchShare) -> Iterator[Figure]:
    """Yield figures for each number of models; those that the database has already come on top.

    Args:
        outlines: packed, one for each model.
    """
    child = trace(mobilenet_v2(*IMAGENET))
    with bench_names(db) as prefix:
        there = 0
        for full, bar in BARS.items():
            count = share.of(full, 40)
            _add(db, f"{prefix}_{count}", outlines[there:count])
            there = count
            runs = [_search(db, child) for _ in range(share.of(ROUNDS))]
            name = f"{db.connection.engine}, {count} models"
            first = [round(one, 3) for one, _ in runs]
            yield at_most(f"{name}: first search of a session", first, "s", bar)
            later = [round(one, 3) for _, one in runs]
            yield Figure(name=f"{name}: a later one", value=min(later), unit="s", runs=later)


def _search(db: Database, child: NetworkGraph) -> tuple[float, float]:
    with _session(db) as connection:
        first, later = (choose_parent(connection, child) for _ in range(2))
    return first.match_s, later.match_s


@contextmanager
def _session(db: Database) -> Iterator[AnyConnection]:
    """Yield a new session with a database."""
    own = db.connection
    new = own.cursor() if isinstance(own, DuckConnection) else open_connection(own.url)
    try:
        yield new
    finally:
        new.close()


def _add(db: Database, prefix: str, outlines: Sequence[bytes]) -> None:
    """Add a model, with an architecture of its own, for each outline."""
    connection = db.connection
    by_hash = {
        blake2b(f"{prefix} {number}".encode(), digest_size=32).digest(): one
        for number, one in enumerate(outlines)
    }
    with connection.transaction():
        connection.append(_Q.add_architecture, ((name, True, 1, 1, 4) for name in by_hash))
        rows = connection.rows(_Q.find_architectures)
        added = {
            row["architecture_id"]: bytes(row["canonical_hash"])
            for row in rows
            if bytes(row["canonical_hash"]) in by_hash
        }
        connection.append(
            _Q.add_outline, ((one, VERSION, 1, 1, by_hash[name]) for one, name in added.items())
        )
        connection.append(
            _Q.add_model,
            (
                (f"{prefix}_{one}", 1, "snapshot", one, name, 1, 4, "{}", "{}", 4, 0.0)
                for one, name in added.items()
            ),
        )
    if connection.engine == "postgres":
        for table in ("architecture", "outline", "model"):
            db.sql(f"VACUUM ANALYZE mmdb.{table}")
