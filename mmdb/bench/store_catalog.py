"""A catalog of 10,000 models of 160 tensors: list, search, compare, longest common prefix.

Its rows are written by a few statements: 10,000 saves would take hours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from statistics import median

import torch
from torch import nn

from mmdb.api import connect
from mmdb.bench.figures import Figure, at_most, take_turns
from mmdb.bench.store_subject import Subject, Wire, reference, settle

MODELS, KIND, TENSORS, OWN = 10_000, 100, 160, 10
SHARED = TENSORS - OWN

#: What the engines write in different words: series of integers `i` from 0, 32 bytes for a text,
#: a position among the rows that were just added.
SERIES = {
    "postgres": "(SELECT g.i FROM generate_series(0, {n} - 1) AS g(i))",
    "duckdb": "(SELECT CAST(g.range AS BIGINT) AS i FROM range({n}) AS g)",
}
BYTES = {"postgres": "sha256(convert_to({text}, 'UTF8'))", "duckdb": "unhex(sha256({text}))"}
SHAPE = {"postgres": "ARRAY[256, 256]::bigint[]", "duckdb": "CAST([256, 256] AS BIGINT[])"}


def stack(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return a factory's network of 80 linear layers, so of TENSORS tensors, 1.3 MB in all."""
    width = input_shape[0]
    layers = [nn.Linear(width, width) for _ in range(TENSORS // 2 - 1)]
    return nn.Sequential(*layers, nn.Linear(width, outputs))


def relatives(seed: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    """Return a stack, one that differs from it in OWN tensors, and one that differs in all."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        first, stranger = stack((64,), 64), stack((64,), 64)
    sister = deepcopy(first)
    for tensor in list(sister.state_dict().values())[-OWN:]:
        tensor.mul_(1.001)
    return first, sister, stranger


def fill(subject: Subject, base: str, models: int) -> None:
    """Add a zoo beside a saved model, whose definition and environment its models have too.

    Args:
        models: a multiple of KIND.
    """
    rows = AddedRows(subject, models)
    name, _, version = base.partition("@")
    for table in ("tensor", "manifest", "architecture"):
        rows.mark(table)
    where = f"WHERE b.name = '{name}' AND b.version = {version}"
    with subject.db.connection.transaction():
        _add_tensors(rows)
        _add_manifests(rows)
        _add_architectures(rows, where)
        _add_models(rows, where)
        _add_tags_and_metrics(rows)
    rows.drop()


class AddedRows:
    """Rows added to tables whose keys the database makes."""

    def __init__(self, subject: Subject, models: int) -> None:
        self._subject = subject
        self._engine = subject.engine
        self._last: dict[str, int] = {}
        self.prefix, self.models = subject.prefix, models

    def mark(self, table: str) -> None:
        """Remember the last key of a table."""
        statement = f"SELECT coalesce(max({table}_id), 0) AS n FROM mmdb.{table}"
        self._last[table] = int(self._subject.db.sql(statement)[0]["n"])

    def number(self, table: str) -> None:
        """Make zoo_<table>, (i, key) of the rows added since the mark."""
        self.run(
            f"CREATE TEMPORARY TABLE zoo_{table} AS "
            f"SELECT row_number() OVER (ORDER BY t.{table}_id) - 1 AS i, t.{table}_id "
            f"FROM mmdb.{table} AS t WHERE t.{table}_id > {self._last[table]}"
        )
        if self._engine == "postgres":
            self.run(f"ANALYZE zoo_{table}")

    def drop(self) -> None:
        """Drop the tables that `number` made."""
        for table in self._last:
            self.run(f"DROP TABLE zoo_{table}")

    def run(self, statement: str) -> None:
        """Run a statement."""
        self._subject.db.sql(statement)

    def series(self, count: int) -> str:
        """Return a table of the integers i from 0."""
        return SERIES[self._engine].format(n=count)

    def bytes_of(self, text: str) -> str:
        """Return 32 bytes that stand for a text."""
        return BYTES[self._engine].format(text=text)

    @property
    def shape(self) -> str:
        """The shape of every tensor."""
        return SHAPE[self._engine]


def _add_tensors(rows: AddedRows) -> None:
    count = rows.models // KIND * SHARED + rows.models * OWN
    rows.run(
        "INSERT INTO mmdb.tensor (tensor_hash, dtype, shape, byte_count, minimum, maximum, mean, "
        "deviation, zeros, nans) "
        f"SELECT {rows.bytes_of(_text(rows, 'tensor'))}, 'float32', {rows.shape}, 262144, "
        f"-1, 1, 0, 0.1, 0, 0 FROM {rows.series(count)} AS s ORDER BY s.i"
    )
    rows.number("tensor")
    rows.run(
        "INSERT INTO mmdb.encoding (tensor_id, base_id, word, chunk_bytes, chunks, stored_bytes) "
        "SELECT t.tensor_id, NULL, 4, 262144, 1, 220000 FROM zoo_tensor AS t"
    )


def _add_manifests(rows: AddedRows) -> None:
    models = rows.series(rows.models)
    rows.run(f"INSERT INTO mmdb.manifest (created_at) SELECT now() FROM {models} AS s")
    rows.number("manifest")
    rows.run(
        "INSERT INTO mmdb.manifest_tensor (manifest_id, ordinal, path, tensor_id, kind, trainable) "
        "SELECT m.manifest_id, s.i, "
        "'layer' || CAST(s.i % 20 AS text) || '.conv' || CAST(s.i AS text) || '.weight', "
        "t.tensor_id, 'parameter', true "
        f"FROM zoo_manifest AS m CROSS JOIN {rows.series(TENSORS)} AS s "
        f"INNER JOIN zoo_tensor AS t ON t.i = CASE WHEN s.i < {SHARED} "
        f"THEN CAST(floor(m.i / {KIND}.0) AS bigint) * {SHARED} + s.i "
        f"ELSE {rows.models // KIND * SHARED} + m.i * {OWN} + s.i - {SHARED} END"
    )


def _add_architectures(rows: AddedRows, where: str) -> None:
    """The i-th has the first i % 60 nodes of the saved one's; the rest hash to something else."""
    base = f"(SELECT b.architecture_id FROM mmdb.model AS b {where})"
    rows.run(
        "INSERT INTO mmdb.architecture (canonical_hash, is_traced, node_count, parameter_count, "
        "parameter_bytes) "
        f"SELECT {rows.bytes_of(_text(rows, 'architecture'))}, a.is_traced, a.node_count, "
        f"a.parameter_count, a.parameter_bytes FROM {rows.series(rows.models)} AS s "
        f"CROSS JOIN mmdb.architecture AS a WHERE a.architecture_id = {base} ORDER BY s.i"
    )
    rows.number("architecture")
    other = rows.bytes_of(
        f"'{rows.prefix}-node-' || CAST(z.i AS text) || '-' || CAST(n.ordinal AS text)"
    )
    rows.run(
        "INSERT INTO mmdb.architecture_prefix (prefix_hash, node_count, parameter_bytes) "
        f"SELECT {other}, 0, 0 FROM zoo_architecture AS z "
        f"CROSS JOIN mmdb.architecture_node AS n WHERE n.architecture_id = {base} "
        "AND n.ordinal > z.i % 60"
    )
    rows.run(
        "INSERT INTO mmdb.architecture_node (architecture_id, ordinal, op, attributes, parameters, "
        "parameter_bytes, prefix_hash) "
        "SELECT z.architecture_id, n.ordinal, n.op, n.attributes, n.parameters, n.parameter_bytes, "
        f"CASE WHEN n.ordinal <= z.i % 60 THEN n.prefix_hash ELSE {other} END "
        "FROM zoo_architecture AS z "
        f"CROSS JOIN mmdb.architecture_node AS n WHERE n.architecture_id = {base}"
    )
    rows.run(
        "INSERT INTO mmdb.architecture_edge (architecture_id, source, target, position) "
        "SELECT z.architecture_id, e.source, e.target, e.position FROM zoo_architecture AS z "
        f"CROSS JOIN mmdb.architecture_edge AS e WHERE e.architecture_id = {base}"
    )


def _add_models(rows: AddedRows, where: str) -> None:
    rows.run(
        "INSERT INTO mmdb.model (name, version, approach, manifest_id, definition_id, "
        "architecture_id, environment_id, weights_hash, metrics, reason, tensor_count, byte_count, "
        "stored_bytes, save_s) "
        f"SELECT '{rows.prefix}-zoo-' || CAST(s.i AS text), 1, 'snapshot', s.manifest_id, "
        "b.definition_id, z.architecture_id, b.environment_id, "
        f"{rows.bytes_of(_text(rows, 'model'))}, "
        """CAST('{"accuracy": 0.' || CAST(s.i % 10 AS text) || '}' AS json), """
        f"CAST('{{}}' AS json), {TENSORS}, {TENSORS * 262144}, 2200000, 0.1 "
        "FROM zoo_manifest AS s INNER JOIN zoo_architecture AS z ON s.i = z.i "
        f"CROSS JOIN mmdb.model AS b {where} ORDER BY s.i"
    )


def _add_tags_and_metrics(rows: AddedRows) -> None:
    """Three tags and two metrics each: 200 models to a task, their accuracy spread evenly."""
    source = (
        "(SELECT m.model_id, z.i FROM zoo_manifest AS z "
        "INNER JOIN mmdb.model AS m ON z.manifest_id = m.manifest_id)"
    )
    for key, value in (("task", "s.i % 50"), ("team", "s.i % 7"), ("month", "s.i % 24")):
        rows.run(
            "INSERT INTO mmdb.model_tag (model_id, key, value) "
            f"SELECT s.model_id, '{key}', '{key}-' || CAST({value} AS text) FROM {source} AS s"
        )
    for metric in ("accuracy", "loss"):
        rows.run(
            "INSERT INTO mmdb.model_metric (model_id, metric, dataset, value) "
            f"SELECT s.model_id, '{metric}', 'bench', "
            f"(s.i * 7919 % {rows.models}) / {rows.models}.0 FROM {source} AS s"
        )


def _text(rows: AddedRows, kind: str) -> str:
    return f"'{rows.prefix}-{kind}-' || CAST(s.i AS text)"


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
