"""A catalog of 10,000 models of 160 tensors: list, search, compare, longest common prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from mmdb.api import connect
from mmdb.bench.figures import Figure, at_most
from mmdb.bench.store.subject import Subject, reference, settle
from mmdb.bench.store.wire import Wire
from mmdb.bench.store.zoo import KIND, MODELS, OWN, TENSORS, fill, relatives
from mmdb.bench.timing import take_turns

ROUNDS = 21
CATALOG_BAR_MS, PREFIX_BAR_MS = 30.0, 50.0
OPENING_BAR = 4096.0  # bytes more that opening the client receives, with the catalog than without


def measure_catalog(subject: Subject) -> Iterator[Figure]:
    """Yield the times of the catalog's questions, and what opening the client reads of it."""
    first, sister, stranger = relatives(80)
    base = subject.save("stack", "stack", first)
    saved = [base, subject.save("stack", "stack", sister, base)]
    saved.append(subject.save("stranger", "stack", stranger))
    empty = _opening(subject)
    models = subject.share.of(MODELS // KIND) * KIND
    fill(subject, reference(base), models)
    settle(subject, ("tensor", "encoding", "manifest_tensor", "architecture_node", "model"))
    settle(subject, ("model_tag", "model_metric", "architecture", "architecture_edge"))
    seconds = take_turns(
        questions(subject, *map(reference, saved)), subject.share.of(ROUNDS), warm=3
    )
    where = f"{subject.engine}, {models:,} models"
    for question, runs in seconds.items():
        bar = PREFIX_BAR_MS if question.startswith("common_prefix") else CATALOG_BAR_MS
        yield at_most(f"{where}: {question}, p50", [median(runs) * 1e3], "ms", bar)
    if empty is not None:
        more = float((_opening(subject) or 0) - empty)
        yield at_most(
            f"{where}: opening the client, bytes of the catalog", [more], "B", OPENING_BAR
        )


def questions(
    subject: Subject, first: str, sister: str, stranger: str
) -> dict[str, Callable[[], object]]:
    """Return what is asked of the catalog, by name.

    Args:
        first, sister, stranger: references of the models that are compared.
    """
    statements = {
        "list the newest 100": (
            "SELECT * FROM mmdb.model_overview AS m ORDER BY m.model_id DESC LIMIT 100"
        ),
        "list all": (
            "SELECT m.model, m.version, m.approach, m.byte_count, m.stored_bytes, m.created_at "
            "FROM mmdb.model_overview AS m"
        ),
        "search by tag and metric": (
            "SELECT t.model, t.version, x.value FROM mmdb.tag_overview AS t "
            "INNER JOIN mmdb.metric_overview AS x ON t.model = x.model AND t.version = x.version "
            "WHERE t.key = 'task' AND t.value = 'task-7' AND x.metric = 'accuracy' "
            "AND x.value > 0.9 ORDER BY x.value DESC"
        ),
        f"diff of two, {OWN} tensors differ": _diff(first, sister),
        f"diff of two, {TENSORS} tensors differ": _diff(first, stranger),
        "common_prefix": (f"SELECT * FROM mmdb.common_prefix('{first}')"),
    }

    def ask(statement: str) -> Callable[[], object]:
        return lambda: subject.db.sql(statement)

    return {question: ask(statement) for question, statement in statements.items()}


def _diff(a: str, b: str) -> str:
    return f"SELECT * FROM mmdb.model_diff('{a}', '{b}')"


def _opening(subject: Subject) -> int | None:
    """Return the bytes that opening a client receives; None where nothing passes a wire."""
    if subject.engine != "postgres":
        return None
    with Wire(subject.db.connection.url) as wire:
        with connect(wire.url):
            pass
        return wire.passed[1]
