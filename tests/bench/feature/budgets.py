"""Runs with little room for features: what they keep, and whether they train the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread

from mmdb.api import Run
from mmdb.bench.figures import Figure
from mmdb.data import node_cache
from mmdb.data.feature_files import row_bytes
from mmdb.train.drive.train_run import train
from tests.bench.feature.compare import largest_gap, within
from tests.bench.feature.networks import FEATURES
from tests.bench.feature.saving import WORKERS
from tests.bench.feature.subject import HEADS, QUERIES, Subject

SHAPE, EPOCHS, ROWS = (64,), 2, 3_000
WIDTHS = {"layer1": 512, FEATURES: 256}
#: Of the bytes of all features. The second is less than one partition takes, the third enough for
#: one on each worker, but not for all of the smaller features.
SHARES = (0.0, 0.1, 0.3, 0.6, 1.0)
#: Seconds between two looks at the cache.
_LOOK_S = 0.01
#: Bytes before the numbers of a .npy file.
_HEADER = 128


@dataclass(slots=True)
class _Peak:
    """The most bytes of features that lay in the node's cache at a time."""

    known: frozenset[str]  # partitions that are raw rows
    bytes: int = 0
    _over: Event = field(default_factory=Event)

    def follow(self) -> None:
        """Look until it is over, and once more."""
        while not self._over.wait(_LOOK_S):
            self.look()
        self.look()

    def look(self) -> None:
        """Look once."""
        self.bytes = max(self.bytes, feature_bytes(node_cache.directory(), self.known))

    def stop(self) -> None:
        """Make `follow` return."""
        self._over.set()


def measure_budgets(subject: Subject) -> Iterator[Figure]:
    """Yield what runs keep at several budgets, and how far they are from one with room for all.

    Workers are processes of the client, so that the cache is one that this process can see.
    """
    rows = subject.share.of(ROWS, 400)
    dataset = subject.dataset("budgets", SHAPE, rows)
    total = rows * sum(row_bytes((width,), "float32") for width in WIDTHS.values())
    reference: dict[int, float] = {}
    cases = [
        ("disk", 1.0),
        *((kind, share) for share in subject.share.first(SHARES, 2) for kind in ("disk", "memory")),
    ]
    worst = {"disk": 0, "memory": 0}
    gap, copies = 0.0, 0
    for number, (kind, share) in enumerate(cases):
        budget = int(total * share)
        given = {"disk_bytes": 0, "memory_bytes": 0} | {f"{kind}_bytes": budget}
        run = _run(subject, f"budgets-{number}", dataset, given)
        _forget(subject, dataset)
        cached = _train(subject, run, dataset)
        kept = {"disk": _stored(subject, dataset), "memory": cached if kind == "memory" else 0}
        copies = max(copies, cached if kind == "disk" else 0)
        ours = subject.objectives(run)
        reference = reference or ours
        gap = max(gap, largest_gap(ours, reference))
        if number:
            for one in worst:
                worst[one] = max(worst[one], kept[one] - given[f"{one}_bytes"])
            yield Figure(
                name=f"{subject.engine}: {_size(kept[kind])} of features with {kind} for "
                f"{_size(budget)} of {_size(total)}: {_told(subject, run)}",
                value=kept[kind],
                unit="bytes",
                bar=f"<= {budget}",
                holds=kept[kind] <= budget,
            )
    for kind, over in worst.items():
        yield Figure(
            name=f"{subject.engine}: bytes over a {kind} budget, at most",
            value=max(over, 0),
            unit="bytes",
            bar="0",
            holds=over <= 0,
        )
    yield Figure(
        name=f"{subject.engine}: copies of stored features in the cache, at most",
        value=copies,
        unit="bytes",
    )
    yield within(f"{subject.engine}: validation losses of all budgets apart by", gap)


def _run(subject: Subject, name: str, dataset: str, budgets: Mapping[str, int]) -> Run:
    arguments = {"width": WIDTHS["layer1"], "depth": 2, "features": WIDTHS[FEATURES]}
    factory = subject.factory("tests.bench.feature.networks:tower")
    return subject.run(
        name,
        dataset,
        {"factory": factory, "arguments": arguments},
        {"freeze_up_to": list(WIDTHS), "head": list(HEADS[:3])},
        epochs=EPOCHS,
        features=budgets,
    )


def _train(subject: Subject, run: Run, dataset: str) -> int:
    """Train a run, and return the most bytes of features that lay in the cache meanwhile."""
    connection = subject.database.connection
    rows = connection.rows(QUERIES.find_parts, dataset=dataset)
    with _watched(frozenset(bytes(row["content_hash"]).hex() for row in rows)) as peak:
        train(connection, run.name, workers=WORKERS, mode="client")
    return peak.bytes


@contextmanager
def _watched(known: frozenset[str]) -> Iterator[_Peak]:
    peak = _Peak(known)
    thread = Thread(target=peak.follow)
    thread.start()
    try:
        yield peak
    finally:
        peak.stop()
        thread.join()


def _forget(subject: Subject, dataset: str) -> None:
    """Delete every feature of a dataset, in the database and in this node's cache."""
    for query in ("delete_blocks", "delete_parts"):
        subject.database.connection.run(getattr(QUERIES, query), dataset=dataset)
    for path in node_cache.directory().iterdir():
        if path.is_file():
            path.unlink()


def _stored(subject: Subject, dataset: str) -> int:
    (row,) = subject.database.connection.rows(QUERIES.measure_blocks, dataset=dataset)
    return int(row["bytes"])


def feature_bytes(folder: Path, known: frozenset[str]) -> int:
    """Return the bytes of arrays of features in a cache, those that are being written too."""
    total = 0
    for path in folder.iterdir():
        if path.name.split(".")[0] in known:
            continue
        file = path / "x.npy" if path.suffix == ".part" else path
        if file.name.endswith("x.npy"):
            with suppress(OSError):  # it was moved to its place, or made room
                total += max(0, file.stat().st_size - _HEADER)
    return total


def _told(subject: Subject, run: Run) -> str:
    return ", ".join(f"{use['layer']} {use['choice']}" for use in subject.uses(run))


def _size(count: float) -> str:
    return f"{count / 1e6:.1f} MB"
