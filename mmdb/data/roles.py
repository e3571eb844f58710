"""Which role each of a query's columns plays: a label, or a part of an input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from mmdb.data.column_layout import KEY, SPLIT, Field, Request, check_twins
from mmdb.data.decoding import ColumnKind, Task
from mmdb.data.options import Options
from mmdb.data.parts import is_document
from mmdb.data.query import Engine
from mmdb.data.transform.fitting import check_asked
from mmdb.data.transform.transform import KINDS, Source
from mmdb.db.connection import ColumnType, Kind
from mmdb.errors import DataError, InvalidOption, UnknownColumn, UnsupportedType
from mmdb.messages import show

_NUMBERS = ("integer", "float", "numeric", "boolean")
_FEATURES: dict[str, tuple[ColumnKind, Kind]] = {
    **dict.fromkeys(_NUMBERS, ("numeric", "real")),
    **dict.fromkeys(("moment", "clock", "span"), ("numeric", "number")),
    "text": ("categorical", "text"),
    "float_array": ("tensor", "reals"),
    "bytes": ("bytes", "bytes"),
}
#: What a label of each type may be predicted as; the first is what it is unless told otherwise.
_TASKS: dict[str, tuple[Task, ...]] = {
    "integer": ("classification", "regression"),
    "boolean": ("classification", "regression"),
    **dict.fromkeys(("float", "numeric"), ("regression", "classification")),
    "text": ("classification",),
    "float_array": ("multilabel",),
    "bytes": ("multilabel",),
}


def plan_request(
    columns: Sequence[tuple[str, ColumnType]], label: str, options: Options, engine: Engine
) -> Request:
    """Return which role each of the query's columns plays.

    Raises:
        UnknownColumn: a label is no output column.
        UnsupportedType: a column cannot become numbers.
        QueryError: two columns have one name. DataError: there is no feature.
        InvalidOption: a task does not fit its label, or an option its columns.
    """
    names, types = [name for name, _ in columns], dict(columns)
    check_twins(names, engine)
    labels = _label_names(names, label, options)
    unused = _unused(names, labels, options)
    weights = [name for name, role in options.roles.items() if role == "weight"]
    is_next = label in options.tokenize and types.get(label) == "text"
    beside = labels[1:] if is_next else labels  # a text is read and predicted
    features = [name for name in names if name not in (*beside, *unused, *weights)]
    if (is_next and features != [label]) or (is_next and (labels[1:] or weights or options.inputs)):
        others = [name for name in (*features, *labels, *weights) if name != label]
        raise InvalidOption(
            f"Next tokens of {label!r} are predicted; the query returns {', '.join(others)}, too.",
            hint="They are read off the text alone: leave the others out, or give them the role "
            "excluded.",
        )
    if not features:
        named = f"label {label!r}" if len(labels) == 1 else "labels"
        raise DataError(
            f"The query returns only the {named} and no feature.",
            hint="SELECT at least one other column.",
        )
    _check_weights(weights, types)
    transformed = [n for n in options.transforms if n != "*" and unused.get(n) != "dropped"]
    _check_names("transforms", transformed, [*features, *labels])
    forced = _forced_tasks(labels, options)
    _check_tokenize(types, features, options)
    planned = {
        name: _label_field(name, kind, forced.get(name), options.transforms.get(name, "auto"))
        if name in labels and not is_next
        else Field(name=name, type=kind, kind="weight", scanned="real")
        if name in weights
        else _feature_field(name, kind, options)
        for name, kind in columns
        if name not in unused
    }
    if is_next:
        planned[label] = replace(planned[label], task="next_token")
    if forced.get(label) not in (None, planned[label].task):
        raise InvalidOption(
            f"Label {label!r} becomes tokens, of which each next one is predicted.",
            hint="Leave task out, or option tokenize.",
        )
    return Request(
        names=tuple(names),
        unused=unused,
        fields=tuple(planned.values()),
        labels=tuple(planned[name] for name in labels),
        inputs=_inputs(planned, features, labels, options),
        options=options,
        engine=engine,
        split=_split_field(types, options.split),
        keys=tuple(
            Field(
                name=name,
                type=kind,
                kind="key",
                scanned="bigint" if kind == "integer" else "text",
                alias=KEY.format(place),
            )
            for place, (name, kind) in enumerate(columns)
            if unused.get(name) == "key"
        ),
    )


def _check_weights(weights: Sequence[str], types: Mapping[str, ColumnType]) -> None:
    if len(weights) > 1:
        raise InvalidOption(f"The columns {', '.join(weights)} are all weights; a row has one.")
    for name in weights:
        if types[name] not in _NUMBERS:
            raise InvalidOption(f"Column {name!r} is {types[name]}; a weight is a number from 0.")


def _split_field(types: Mapping[str, ColumnType], split: Mapping[str, Any]) -> Field | None:
    """Return the column that splits the rows, as the scan has it."""
    name = split.get("column")
    if name is None:
        return None
    if name not in types:
        raise UnknownColumn(f"The query returns no column {name!r} to split its rows by.")
    by_time = split.get("by") == "time"
    if by_time and types[name] not in ("moment", "integer", "float", "numeric"):
        raise InvalidOption(
            f"Column {name!r} is {types[name]}; a split by time needs a date or a number.",
            hint="Split by column or by group, or cast it.",
        )
    scanned: Kind = "number" if by_time else "nullable_text"
    return Field(name=name, type=types[name], kind="excluded", scanned=scanned, alias=SPLIT)


def _label_names(names: Sequence[str], label: str, options: Options) -> tuple[str, ...]:
    if label in options.labels:
        raise InvalidOption(
            f"Option labels names {label!r}, which is the label already.",
            hint="List the labels besides the argument label.",
        )
    labels = (label, *options.labels)
    for name in labels:
        if name not in names:
            raise UnknownColumn(
                f"The query returns no column {name!r} to use as the label; "
                f"it returns {', '.join(names)}.",
                hint="`label`, and each of option labels, is one of the query's output columns.",
            )
    return labels


def _unused(names: Sequence[str], labels: Sequence[str], options: Options) -> dict[str, ColumnKind]:
    """Return the columns that are no feature, with what they are."""
    _check_names("roles", options.roles, [name for name in names if name not in labels])
    roles: dict[str, ColumnKind] = {"key": "key", "excluded": "excluded"}
    found = {name: roles[role] for name, role in options.roles.items() if role in roles}
    if options.split.get("by") in ("column", "group"):  # its values tell nothing of other rows
        divides = str(options.split.get("column"))
        if divides in names and divides not in labels and divides not in options.roles:
            found[divides] = "excluded"
    dropped: dict[str, ColumnKind] = {
        name: "dropped"
        for name, asked in options.transforms.items()
        if asked == "drop" and name in names and name not in labels
        if options.roles.get(name) != "weight"  # so that rows do not lose it unnoticed
    }
    return dropped | found


def _check_names(option: str, given: Iterable[str], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidOption(
                f"Option {option} names {name!r}, which is no feature of the query.",
                hint=f"Its features: {', '.join(known)}.",
            )


def _forced_tasks(labels: Sequence[str], options: Options) -> dict[str, Task | None]:
    """Return the tasks that the options name, by label."""
    for name in options.tasks:
        if name not in labels:
            raise InvalidOption(
                f"Option tasks names {name!r}, which is no label.",
                hint=f"Labels: {', '.join(labels)}.",
            )
    if options.task is not None and labels[0] in options.tasks:
        raise InvalidOption(
            f"The options task and tasks both speak of label {labels[0]!r}.",
            hint="Leave one of them out.",
        )
    return {labels[0]: options.task, **options.tasks}


def _task_of(kind: ColumnType, label: str, forced: Task | None) -> Task:
    if kind not in _TASKS:
        raise UnsupportedType(
            f"Label {label!r} has type {kind}; a label is a number, a boolean, a text, or an "
            "array or byte string of 0 and 1."
        )
    if forced is not None and forced not in _TASKS[kind]:
        raise InvalidOption(
            f"Label {label!r} has type {kind}, which no {forced} can predict.",
            hint=f"Possible: {', '.join(_TASKS[kind])}.",
        )
    return forced or _TASKS[kind][0]


def _label_field(name: str, kind: ColumnType, forced: Task | None, asked: object) -> Field:
    task = _task_of(kind, name, forced)
    scanned: Kind = "bigint"
    if kind in ("text", "float_array", "bytes"):
        scanned = _FEATURES[kind][1]
    elif task == "regression" or kind in ("float", "numeric"):
        scanned = "real"
    guessed = forced is None and kind == "integer"
    if asked not in ("auto", "passthrough", *(["standardize"] if task == "regression" else [])):
        raise InvalidOption(
            f"Label {name!r} cannot be transformed by {show(asked)}.",
            hint="A regression's label is standardized for the loss, or passthrough.",
        )
    return Field(
        name=name,
        type=kind,
        kind="label",
        scanned=scanned,
        task=task,
        is_guessed=guessed,
        asked={"kind": asked},
    )


#: Kinds of transform that read whole numbers as texts do.
_OF_NAMES = ("index", "one_hot", "hash")
#: What the values of a column that is transformed are, by its type.
_SOURCES: dict[str, Source] = {
    **dict.fromkeys(_NUMBERS, "number"),
    "moment": "moment",
    "clock": "clock",
    "span": "span",
    "text": "text",
}


def _feature_field(name: str, kind: ColumnType, options: Options) -> Field:
    if kind not in _FEATURES:
        step = "[0]" if kind.endswith("]") else ".price"
        raise UnsupportedType(
            f"Column {name!r} has type {kind}, which has no form in numbers.",
            hint=f'Name what to read of it: {{"transforms": {{"{name}{step}": "auto"}}}}.'
            if is_document(kind)
            else "Cast it in the query, take a part of it, or leave it out.",
        )
    role, scanned = _FEATURES[kind]
    tokenizer = options.tokenize.get(name)
    if tokenizer is not None:
        return Field(name=name, type=kind, kind="tokens", scanned=scanned, tokenizer=tokenizer)
    source = _SOURCES.get(kind)
    asked = options.transforms.get(name, _of_the_others(options, source))
    if kind == "bytes" and _kind_asked(asked) == "picture":
        source, scanned = "picture", "files"
    if kind in ("integer", "boolean") and _kind_asked(asked) in _OF_NAMES:
        source, role = "text", "categorical"  # numbers that name something, such as a store
    if kind in _NUMBERS and (
        asked == "passthrough" or (asked == "auto" and _is_shaped(name, options))
    ):
        source = None  # as they are
    if source is None:
        if asked not in ("auto", "passthrough"):
            check_asked(name, None, asked)
        return Field(name=name, type=kind, kind=role, scanned=scanned)
    found = check_asked(name, source, asked)
    if source == "text" and kind == "integer":
        found = {**found, "whole": True}
    return Field(
        name=name,
        type=kind,
        kind=role,
        scanned=_SCANNED.get(source, "number"),
        source=source,
        asked=found,
    )


#: How the scan has values of a source that are no numbers.
_SCANNED: dict[Source, Kind] = {"text": "nullable_text", "picture": "files"}


def _kind_asked(asked: object) -> object:
    return asked.get("kind", "auto") if isinstance(asked, Mapping) else asked


def _of_the_others(options: Options, source: Source | None) -> object:
    """Return what the transform "*" asks of a column, auto where it is of another type."""
    asked = options.transforms.get("*", "auto")
    kind = _kind_asked(asked)
    fits = ("auto", "passthrough") if source in (None, "number") else ("auto",)
    return asked if kind in fits or (source and kind in KINDS[source]) else "auto"


def _is_shaped(name: str, options: Options) -> bool:
    """Whether a column is a part of an array of a given shape, whose numbers are of one measure."""
    if options.shape is not None and len(options.shape) > 1:
        return True
    return any(name in options.inputs[given] for given in options.shapes)


def _check_tokenize(
    types: Mapping[str, ColumnType], features: Sequence[str], options: Options
) -> None:
    for name in options.tokenize:
        if name not in features or types[name] != "text":
            texts = [feature for feature in features if types[feature] == "text"]
            raise InvalidOption(
                f"Option tokenize names {name!r}, which is no text feature of the query.",
                hint=f"Text features: {', '.join(texts) or 'none'}.",
            )


def _inputs(
    planned: Mapping[str, Field],
    features: Sequence[str],
    labels: Sequence[str],
    options: Options,
) -> dict[str, tuple[str, ...]]:
    """Return the columns of each input, sorted by name."""
    inputs = dict(options.inputs) or {"": tuple(features)}
    given = [column for columns in inputs.values() for column in columns]
    for column in given:
        if column not in features:
            what = "a label" if column in labels else "no feature of the query"
            raise InvalidOption(
                f"Option inputs names {column!r}, which is {what}.",
                hint=f"Features: {', '.join(features)}.",
            )
    left = [column for column in features if column not in given]
    if left:
        raise InvalidOption(
            f"Column {left[0]!r} is in no input.",
            hint="Add it to one, or leave it out of the query.",
        )
    for name, columns in inputs.items():
        _check_tokens_alone(name, [planned[column] for column in columns], options)
    return inputs


def _check_tokens_alone(name: str, fields: Sequence[Field], options: Options) -> None:
    """Refuse to stack tokens, which are integers, with numbers, or to shape them."""
    tokens = next((field for field in fields if field.tokenizer is not None), None)
    if tokens is None:
        return
    if len(fields) > 1:
        raise InvalidOption(
            f"Column {tokens.name!r} becomes tokens, which need an input of their own.",
            hint=f'Pass inputs, such as {{"text": ["{tokens.name}"], "rest": [...]}}.',
        )
    if (options.shapes.get(name) if name else options.shape) is not None:
        raise InvalidOption(
            f"Column {tokens.name!r} becomes tokens, whose shape is their length.",
            hint="Leave its shape out.",
        )
