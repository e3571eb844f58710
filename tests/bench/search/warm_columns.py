"""Children that begin with a parent of another dataset: columns in another order, categories and
classes that came or went. What is said to compute what the parent does must do so for the same
rows, given by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psycopg
import torch
from torch import Tensor, nn

import mmdb
from mmdb.api import Database
from mmdb.bench.figures import Figure
from mmdb.db.install import install
from mmdb.graph.factories import linear, mlp
from tests.bench.search.campaigns import none_of
from tests.cluster import Cluster
from tests.warm_runs import first_weights, warm

_CHILDREN = 4  # of a parent
_BY_RUN = 5  # one child of so many is a candidate of a run
_CLOSE = 1e-4
_NAMES = ("a", "b", "Age", "größe", "two words", "select", "x1", "x10")
_VALUES = ("red", "Blue", "grün", "", "10", "9", "it's", "violet")
_CLASSES: tuple[tuple[Any, ...], ...] = (
    ("no", "yes", "maybe", "No", "unknown"),
    (0, 1, 2, 10, 9),
)
Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class _Table:
    """What a dataset is made of.

    Attributes:
        columns: "number", "text" or "array", by name, in the query's order.
        values: of each column of texts, in the order of a row's numbers.
        classes: in the order of the outputs; () for a number.
    """

    columns: Mapping[str, str]
    values: Mapping[str, tuple[str, ...]]
    classes: tuple[Any, ...]

    def encoded(self, rows: Sequence[Row]) -> Tensor:
        """Return rows as a model of this dataset reads them; what it does not know is 0."""
        return torch.tensor([self._numbers(row) for row in rows], dtype=torch.float32)

    def _numbers(self, row: Row) -> list[float]:
        found: list[float] = []
        for name, kind in self.columns.items():
            given = row.get(name)
            if kind == "text":
                found += [float(given == value) for value in self.values[name]]
            elif kind == "array":
                found += given if isinstance(given, list) else [0.0, 0.0]
            else:
                found.append(given if isinstance(given, float) else 0.0)
        return found

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return len(self._numbers({}))


@dataclass(frozen=True, kw_only=True)
class _Model:
    architecture: str
    hidden: tuple[int, ...]
    batch_norm: bool

    def built(self, table: _Table, rng: np.random.Generator) -> nn.Module:
        """Return a module whose every tensor is drawn."""
        torch.manual_seed(int(rng.integers(1 << 30)))
        shape, outputs = (table.width,), len(table.classes) or 1
        module = linear(shape, outputs)
        if self.hidden:
            module = mlp(shape, outputs, hidden=list(self.hidden), batch_norm=self.batch_norm)
        with torch.no_grad():
            for path, tensor in module.state_dict().items():
                if tensor.is_floating_point():
                    tensor.copy_(torch.rand(tensor.shape) + (0.5 if "var" in path else -0.5))
        return module.eval()


def warm_figures(*, seed: int, cases: int) -> list[Figure]:
    """Begin that many children, on both engines, and return how many were said wrongly."""
    found: Counter[str] = Counter()
    with _databases() as databases:
        for case in range(0, cases, _CHILDREN):
            db = databases[case // _CHILDREN % len(databases)]
            found += _family(db, seed, case, min(_CHILDREN, cases - case))
    return [
        Figure(name="children begun", value=found["children"], unit="children"),
        Figure(name="children said to be exact", value=found["exact"], unit="children"),
        none_of("children said to be exact that are not", found["wrong"], "children"),
        none_of("children that could be exact and are not", found["missed"], "children"),
        none_of("outputs of a known class that are not the parent's", found["lost"], "children"),
    ]


@contextmanager
def _databases() -> Iterator[list[Database]]:
    """Yield one database of each engine."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        cluster = stack.enter_context(Cluster())
        urls = [f"duckdb:///{folder / 'mmdb.duckdb'}", cluster.create_database("warm_columns")]
        with psycopg.connect(urls[1], autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS plpython3u")
        for url in urls:
            install(url)
        yield [stack.enter_context(mmdb.connect(url)) for url in urls]


def _family(db: Database, seed: int, case: int, count: int) -> Counter[str]:
    """Begin children of one parent."""
    rng = np.random.default_rng((seed, case))
    table = _parent_table(rng)
    name = f"p{case}"
    _dataset(db, name, table, rng)
    model = _model(rng)
    parent = model.built(table, rng)
    db.save(name, parent, architecture=model.architecture, dataset=name)
    found: Counter[str] = Counter()
    for number in range(case, case + count):
        own = _child_table(table, rng)
        rows = _dataset(db, f"c{number}", own, rng)
        how = _wider(model, rng)
        child = how.built(own, rng)
        if number % _BY_RUN:
            said = db.warm_start(child, f"{name}@1", dataset=f"c{number}")
            is_exact, reason = said.exact, said.reason
        else:
            reason = _by_run(db, f"c{number}", how.architecture, f"{name}@1", child)
            is_exact = "computes what the parent does" in reason
        with torch.no_grad():
            outputs, expected = child.eval()(own.encoded(rows)), parent(table.encoded(rows))
        found += _judged(table, own, is_exact, reason, outputs, expected)
    return found


def _by_run(db: Database, dataset: str, architecture: str, parent: str, child: nn.Module) -> str:
    """Begin a candidate, put its first weights into the child, and return the reason."""
    search = {"space": {"lr": 0.01}}
    run = db.create_run(
        dataset, dataset=dataset, architecture=architecture, search=search, warm_start=parent
    )
    db.sql(f"SELECT * FROM mmdb.begin_candidate({run.leaderboard()[0]['candidate_id']})")
    (row,) = warm(db, dataset)
    if row["parent"] is not None:
        child.load_state_dict(first_weights(db, row))
    return str(row["reason"])


def _judged(
    table: _Table, own: _Table, is_exact: bool, reason: str, outputs: Tensor, expected: Tensor
) -> Counter[str]:
    has_all = all(own.columns.get(name) == kind for name, kind in table.columns.items())
    has_classes = set(own.classes) == set(table.classes)
    shared = [value for value in own.classes if value in table.classes]
    if own.classes:
        outputs = outputs[:, [own.classes.index(value) for value in shared]]
        expected = expected[:, [table.classes.index(value) for value in shared]]
    are_equal = torch.allclose(outputs, expected, rtol=_CLOSE, atol=_CLOSE)
    reads = any(kind != "text" for kind in table.columns.values()) or any(
        set(values) & set(own.values.get(name, ())) for name, values in table.values.items()
    )
    can_be = has_all and reads and table.width > 1
    return Counter(
        children=1,
        exact=int(is_exact),
        wrong=int(is_exact and not (has_all and has_classes and are_equal)),
        missed=int(can_be and has_classes and not is_exact),
        lost=int(can_be and not are_equal),
    )


# -- what is drawn -------------------------------------------------------------------------


def _parent_table(rng: np.random.Generator) -> _Table:
    names = rng.permutation(_NAMES)[: rng.integers(2, 6)].tolist()
    kinds = rng.choice(["number", "text", "array"], len(names), p=[0.4, 0.4, 0.2])
    columns = dict(zip(names, kinds.tolist(), strict=True))
    values = {name: _some(_VALUES, rng, 1) for name, kind in columns.items() if kind == "text"}
    classes = _CLASSES[rng.integers(2)]
    some = _some(classes, rng, 2) if rng.random() < 0.8 else ()
    return _Table(columns=columns, values=values, classes=some)


def _child_table(table: _Table, rng: np.random.Generator) -> _Table:
    """Return a table whose columns, categories and classes differ in some ways, or in none."""
    columns, values, classes = dict(table.columns), dict(table.values), table.classes
    others = [name for name in _NAMES if name not in columns]
    if others and rng.random() < 0.3:
        columns[str(rng.choice(others))] = "number"
    if others and rng.random() < 0.2:
        new = str(rng.choice(others))
        columns[new], values[new] = "text", _some(_VALUES, rng, 1)
    if len(columns) > 1 and rng.random() < 0.15:
        del columns[str(rng.choice(list(columns)))]
    if rng.random() < 0.1:
        retyped = str(rng.choice(list(columns)))
        columns[retyped] = "text" if columns[retyped] == "number" else "number"
        values[retyped] = _some(_VALUES, rng, 1)
    for name in values:
        if rng.random() < 0.5:
            values[name] = _some(_VALUES, rng, 1)
    if classes and rng.random() < 0.3:
        classes = _some(_CLASSES[isinstance(classes[0], int)], rng, 2)
    order = rng.permutation(list(columns)).tolist()
    return _Table(columns={name: columns[name] for name in order}, values=values, classes=classes)


def _some(among: Sequence[Any], rng: np.random.Generator, least: int) -> tuple[Any, ...]:
    chosen = rng.permutation(len(among))[: rng.integers(least, len(among) + 1)]
    return tuple(sorted(among[place] for place in chosen.tolist()))


def _model(rng: np.random.Generator) -> _Model:
    hidden = (tuple(rng.integers(3, 9, rng.integers(1, 3)).tolist()), ())[rng.random() < 0.2]
    return _named(_Model(architecture="", hidden=hidden, batch_norm=bool(rng.random() < 0.4)))


def _wider(model: _Model, rng: np.random.Generator) -> _Model:
    if rng.random() < 0.6 or not model.hidden:
        return model
    wide = tuple(size + int(rng.integers(1, 4)) for size in model.hidden)
    return _named(replace(model, hidden=wide))


def _named(model: _Model) -> _Model:
    if not model.hidden:
        return replace(model, architecture="linear")
    flag = str(model.batch_norm).lower()
    return replace(model, architecture=f"mlp(hidden={list(model.hidden)}, batch_norm={flag})")


def _dataset(db: Database, name: str, table: _Table, rng: np.random.Generator) -> list[Row]:
    """Create a table and a dataset with every value and class of it, and return the rows."""
    most = max(2, len(table.classes), *(len(one) for one in (*table.values.values(), ())))
    rows = [_row(table, number, rng) for number in range(2 * most)]
    types = {"number": "double precision", "text": "text", "array": "real[]"}
    label = {str: "text", int: "integer"}[type(table.classes[0])] if table.classes else "real"
    kinds = {**{column: types[kind] for column, kind in table.columns.items()}, "y": label}
    listed = ", ".join(f'"{column}" {kind}' for column, kind in kinds.items())
    db.sql(f"CREATE TABLE t_{name} ({listed})")
    lines = (", ".join(_literal(row[column]) for column in kinds) for row in rows)
    db.sql(f"INSERT INTO t_{name} VALUES {', '.join(f'({line})' for line in lines)}")
    chosen = ", ".join(f'"{column}"' for column in kinds)
    as_they_are = {
        column: "one_hot" if kind == "text" else "passthrough"
        for column, kind in table.columns.items()
    }
    options = {"transforms": {**as_they_are, "y": "passthrough"}}
    query = f"SELECT {chosen} FROM t_{name}"
    db.create_dataset(name, query, partitions=1, validation=0, seed=1, options=options)
    return rows


def _row(table: _Table, number: int, rng: np.random.Generator) -> Row:
    row: dict[str, Any] = {"y": float(rng.normal())}
    if table.classes:
        row["y"] = table.classes[number % len(table.classes)]
    for name, kind in table.columns.items():
        if kind == "text":
            row[name] = table.values[name][number % len(table.values[name])]
        else:
            drawn = rng.normal(size=2).round(3).tolist()
            row[name] = drawn if kind == "array" else drawn[0]
    return row


def _literal(value: Any) -> str:
    if isinstance(value, list):
        return f"ARRAY[{', '.join(map(repr, value))}]"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else repr(value)
