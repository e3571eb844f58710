"""A model card: Markdown with a YAML head, as model hubs read it. Equal facts give equal text."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from mmdb.data.names import reference_of
from mmdb.db.connection import Connection, Row
from mmdb.db.queries import Query, load
from mmdb.errors import ModelNotFound
from mmdb.messages import show
from mmdb.standards.identity import moment

_Q = load("standards")


@dataclass(frozen=True, slots=True, kw_only=True)
class CardFacts:
    """Rows of `sql/queries/standards.sql`, of one version."""

    model: Row
    aliases: Sequence[str]
    metrics: Sequence[Row]
    tags: Sequence[Row]
    notes: Sequence[Row]
    dataset: Row | None  # None: it was trained on none that is known
    transforms: Sequence[Row]
    sources: Sequence[Row]
    run: Row | None
    candidates: Sequence[Row]  # several: it is their mean
    children: Sequence[Row]


def read_card(connection: Connection, model: str) -> CardFacts:
    """Read what is known of a model through the views, dropped ones too.

    Args:
        model: `name`, `name@version` or `name@alias`; the newest version where none is named.
    Raises:
        ModelNotFound
    """
    name, version, aliases = _find(connection, model)
    key = {"model": name, "version": version}
    (row,) = connection.rows(_Q.find_card, **key)
    run, dataset = row["run"], row["dataset"]

    def first(query: Query, **parameters: object) -> Row | None:
        return next(iter(connection.rows(query, **parameters)), None)

    used = first(_Q.find_card_datasets, dataset=dataset, until=row["created_at"])
    dataset_id = None if used is None else used["dataset_id"]
    return CardFacts(
        model=row,
        aliases=aliases,
        metrics=connection.rows(_Q.find_card_metrics, **key),
        tags=connection.rows(load("report_models").find_tags, **key),
        notes=connection.rows(_Q.find_card_notes, **key),
        dataset=used,
        transforms=connection.rows(_Q.find_card_transforms, dataset_id=dataset_id),
        sources=connection.rows(_Q.find_card_sources, **key),
        run=first(_Q.find_card_run, run=run),
        candidates=connection.rows(_Q.find_card_candidates, run=run, model_id=row["model_id"]),
        children=connection.rows(_Q.find_card_children, parent=f"{name}@{version}"),
    )


def _find(connection: Connection, model: str) -> tuple[str, int, list[str]]:
    """Return name, version and aliases of what a reference names."""
    asked = reference_of(model)
    if asked is None:
        raise ModelNotFound(f"{show(model)} names no model.")
    rows = connection.rows(_Q.find_card_versions, model=asked.name)
    for row in rows:
        if asked.version in (None, row["version"]) and asked.alias in (None, row["alias"]):
            version = row["version"]
            names = [r["alias"] for r in rows if r["version"] == version and r["alias"]]
            return asked.name, version, names
    raise ModelNotFound(f"There is no model {show(model)}.")


_TASKS = {
    "classification": "tabular-classification",
    "multilabel": "tabular-classification",
    "next_token": "text-generation",
    "regression": "tabular-regression",
}
#: What would be a list, a heading or a rule at the beginning of a line.
_MARKER = re.compile(r"^(?=[-+=])|^(\d+)(?=[.)])")
#: Characters that YAML cannot hold as they are, or takes for the end of a line.
_NOT_YAML = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
#: Characters that would be markup in the middle of a line.
_MARKUP = re.compile(r"([\\`*_\[\]<>|#&~])")


def card(facts: CardFacts) -> str:
    """Return the card of a version."""
    parts = (_head, _model, _use, _training, _data, _evaluation, _lineage, _notes)
    return "\n".join(line for part in parts for line in part(facts)).rstrip() + "\n"


def text(value: object) -> str:
    """Return a text so that it stands in a line or a table as it is.

    >>> text("a|b <i> *c*")
    'a\\\\|b \\\\<i\\\\> \\\\*c\\\\*'
    """
    return _MARKUP.sub(r"\\\1", " ".join(str(value).split()))


def _reference(facts: CardFacts) -> str:
    return f"{facts.model['model']}@{facts.model['version']}"


def _head(facts: CardFacts) -> Iterator[str]:
    """Yield the YAML; each value is JSON, which YAML holds."""
    name = _reference(facts)
    tags = ["mmdb", facts.model["approach"], *(f"{t['key']}:{t['value']}" for t in facts.tags)]
    yield "---"
    yield "library_name: pytorch"
    yield f"tags: {_json(tags)}"
    if facts.model["dataset"] is not None:
        yield f"datasets: {_json([facts.model['dataset']])}"
    if facts.metrics:
        yield f"metrics: {_json(sorted({m['metric'] for m in facts.metrics}))}"
    if facts.metrics and facts.dataset is not None:
        yield "model-index:"
        yield f"- name: {_json(name)}"
        yield "  results:"
        for dataset in dict.fromkeys(metric["dataset"] for metric in facts.metrics):
            yield "  - task:"
            yield f"      type: {_json(_TASKS.get(facts.dataset['task'], facts.dataset['task']))}"
            yield "    dataset:"
            yield f"      name: {_json(dataset or facts.model['dataset'])}"
            yield '      type: "mmdb"'
            yield "    metrics:"
            for metric in facts.metrics:
                if metric["dataset"] == dataset:
                    yield f"    - type: {_json(metric['metric'])}"
                    yield f"      value: {_number(metric['value'])}"
    yield "---"
    yield ""


def _model(facts: CardFacts) -> Iterator[str]:
    model = facts.model
    yield f"# {text(_reference(facts))}"
    yield ""
    if model["dropped_at"] is not None:
        yield f"**Dropped** at {moment(model['dropped_at'])}: its lineage is kept, its weights not."
        yield ""
    yield from _table(
        ("", ""),
        [
            ("saved", moment(model["created_at"])),
            ("kept as", model["approach"]),
            ("aliases", ", ".join(facts.aliases)),
            ("parameters", _count(model["parameters"])),
            ("tensors", _count(model["tensors"])),
            ("bytes", _count(model["byte_count"])),
            ("bytes that saving it added", _count(model["stored_bytes"])),
            ("layers and operations", _count(model["nodes"])),
        ],
    )
    if model["architecture"] is not None:
        yield from _titled("Architecture:")
        yield from _block("json", _pretty(model["architecture"]))
        if json.loads(model["arguments"]):
            yield "with the candidate's arguments:"
            yield ""
            yield from _block("json", _pretty(model["arguments"]))


def _use(facts: CardFacts) -> Iterator[str]:
    if facts.model["dropped_at"] is not None:
        return
    reference = _reference(facts)
    yield from _titled("## Use")
    loaded = f"module = db.recover({json.dumps(reference)})"
    yield from _block("python", f"with mmdb.connect(URL) as db:\n    {loaded}")
    if facts.dataset is not None:
        quoted = reference.replace("'", "''")
        query = f"SELECT * FROM mmdb.predict_query('{quoted}', 'SELECT … FROM …');"
        yield from _block("sql", query)


def _training(facts: CardFacts) -> Iterator[str]:
    if facts.run is None:
        return
    run, candidates, epoch = facts.run, facts.candidates, facts.model["epoch"]
    is_mean = len(candidates) > 1
    numbers = ", ".join(str(one["candidate"] + 1) for one in candidates)
    of = f"{numbers} of {run['candidates']}" if candidates else None
    epochs = ", ".join(str(one["epoch"] + 1) for one in candidates) if is_mean else None
    yield from _titled("## Training")
    rows: list[tuple[str, Any]] = [
        ("run", facts.model["run"]),
        ("strategy", run["strategy"]),
        ("compared by", run["metric"]),
        ("epochs of the run", run["epochs"]),
        ("epoch of this model", None if is_mean or epoch is None else epoch + 1),
        ("the mean of candidates" if is_mean else "candidate", of),
        ("at their epochs", epochs),
    ]
    yield from _table(("", ""), rows)
    configs = [json.loads(one["config"]) for one in candidates]
    if names := sorted({name for config in configs for name in config}):
        yield from _titled("Hyper-parameters:")
        values = [(k, *(_plain(c[k]) if k in c else "" for c in configs)) for k in names]
        titles = [f"candidate {one['candidate'] + 1}" for one in candidates]
        yield from _table(("name", *(titles if is_mean else ["value"])), values, keep_empty=True)


def _data(facts: CardFacts) -> Iterator[str]:
    yield from _titled("## Training data")
    if facts.dataset is None:
        yield "It was saved without a dataset: what it was trained on is not known here."
        yield ""
        return
    dataset = facts.dataset
    classes = json.loads(dataset["classes"]) if dataset["classes"] else None
    rows = [
        ("dataset", facts.model["dataset"]),
        ("rows", _count(dataset["row_count"])),
        ("held out for validation", f"{dataset['validation']:.0%}"),
        ("label", dataset["label"]),
        ("task", dataset["task"]),
        ("classes", None if classes is None else len(classes)),
        ("registered", moment(dataset["created_at"])),
    ]
    yield from _table(("", ""), rows)
    if dataset["query"]:  # that of a model out of a file stays where it was
        yield from _titled("The rows that this query returned on that day:")
        yield from _block("sql", dataset["query"])
    if facts.transforms:
        yield from _titled("What its columns become, fitted on the train rows:")
        names = ("column_name", "role", "transform", "meaning", "missing")
        cells = [["" if t[n] is None else t[n] for n in names] for t in facts.transforms]
        yield from _table(("column", "role", "becomes", "how", "NULLs"), cells, keep_empty=True)
    read = [s for s in facts.sources if s["table_name"] is not None]
    if read:
        yield from _titled("Columns that it reads:")
        columns = ("table", "column", "becomes")
        yield from _table(columns, [_source(s) for s in read], keep_empty=True)


def _source(row: Row) -> tuple[str, str, str]:
    table = ".".join(part for part in (row["schema_name"], row["table_name"]) if part)
    through = f" through {row['via']}" if row["via"] else ""
    return (
        table + through if table else "not resolved",
        row["column_name"] or "not resolved",
        row["output_name"] or "nothing: it decides which rows",
    )


def _evaluation(facts: CardFacts) -> Iterator[str]:
    if not facts.metrics:
        return
    yield from _titled("## Evaluation")
    own = "the validation rows" if facts.dataset is not None else "not said"
    rows = [(m["metric"], m["dataset"] or own, _number(m["value"])) for m in facts.metrics]
    yield from _table(("metric", "measured on", "value"), rows, keep_empty=True)


def _lineage(facts: CardFacts) -> Iterator[str]:
    warm = next((s for s in facts.sources if s["warm_parent"] is not None), None)
    children = ", ".join(f"{c['model']}@{c['version']}" for c in facts.children)
    rows = [
        ("made from", facts.model["parent"]),
        ("began with tensors of", None if warm is None else warm["warm_parent"]),
        ("share of parameters from there", None if warm is None else f"{warm['coverage']:.0%}"),
        ("models made from it", children or None),
    ]
    if any(value is not None for _, value in rows):
        yield from _titled("## Lineage")
        yield from _table(("", ""), rows)


def _notes(facts: CardFacts) -> Iterator[str]:
    if facts.notes:
        yield from _titled("## Notes")
        for note in facts.notes:
            by = f", {text(note['author'])}" if note["author"] else ""
            said = _MARKER.sub(r"\1\\", text(note["note"]))
            yield f"- {said} ({moment(note['created_at'])}{by})"
        yield ""


# -- pieces -----------------------------------------------------------------------------------


def _titled(line: str) -> tuple[str, str]:
    return line, ""


def _table(
    names: Sequence[str], rows: Iterable[Sequence[Any]], *, keep_empty: bool = False
) -> Iterator[str]:
    """Yield a table; rows whose last cell is None or empty are left out unless they are kept."""
    yield f"| {' | '.join(names)} |"
    yield f"|{'---|' * len(names)}"
    for row in rows:
        if keep_empty or row[-1] not in (None, ""):
            yield f"| {' | '.join(text(cell) for cell in row)} |"
    yield ""


def _block(language: str, content: str) -> Iterator[str]:
    """Yield a block of code, in a fence longer than any inside it."""
    longest = max((len(run) for run in re.findall("`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    yield f"{fence}{language}"
    yield content
    yield fence
    yield ""


def _json(value: object) -> str:
    found = json.dumps(value, ensure_ascii=False)
    return _NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", found)


def _pretty(value: str) -> str:
    return json.dumps(json.loads(value), indent=2, sort_keys=True, ensure_ascii=False)


def _plain(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _number(value: float) -> str:
    """Return a number as YAML has it.

    >>> _number(0.25), _number(1e-05), _number(float("-inf"))
    ('0.25', '1.0e-05', '-.inf')
    """
    if math.isnan(value):
        return ".nan"
    if not math.isfinite(value):
        return f"{'-' if value < 0 else ''}.inf"
    digits, exponent, power = f"{value:.6g}".partition("e")
    # without a point, YAML 1.1 takes a number with an exponent for a text
    return f"{digits if '.' in digits else f'{digits}.0'}e{power}" if exponent else digits


def _count(value: int | None) -> str | None:
    return None if value is None else f"{value:,}"


def model_card(connection: Connection, model: str) -> str:
    """Return the card of a model, in Markdown: see `read_card`."""
    return card(read_card(connection, model))
