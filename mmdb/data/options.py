"""The options of create_dataset, checked as far as that needs no query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from keyword import iskeyword
from typing import Any, TypeGuard, cast

from mmdb.arguments import check_flag, is_whole, unfit
from mmdb.data.decoding import TASKS, Task
from mmdb.data.tokenize import BUILT_IN, DEFAULT_VOCABULARY, MAX_ID, MAX_LENGTH, Tokenizer
from mmdb.errors import InvalidOption
from mmdb.messages import show

#: What a column of the query may be besides a label.
ROLES = ("feature", "key", "excluded", "weight")
_TASKS = ", ".join(map(repr, TASKS))
#: How the options that are objects are written.
_BY_NAME = {
    "tasks": 'pass a task by label, such as {"price": "regression"}.',
    "inputs": 'pass columns by input, such as {"image": ["pixels"], "meta": ["age"]}.',
    "shapes": 'pass a shape by input, such as {"image": [1, 8, 8]}.',
    "transforms": 'pass a kind by column, such as {"born": "cyclic"}.',
    "roles": 'pass a role by column, such as {"id": "key"}.',
    "split": 'pass {"by": "time", "column": "flown", "test": 0.1}, or by column or group.',
    "tokenize": 'pass a tokenizer by column, such as {"review": {"function": "bytes", '
    '"length": 64}}.',
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of create_dataset, with their defaults."""

    shape: tuple[int, ...] | None = None  # of one row's features
    max_categories: int = 100_000  # distinct values of a text feature
    max_classes: int = 10_000
    task: Task | None = None  # of `label`; None: by its type
    labels: tuple[str, ...] = ()  # columns to predict besides `label`
    tasks: Mapping[str, Task] = field(default_factory=dict)  # of labels, by column
    inputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # columns by input
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # by input
    tokenize: Mapping[str, Tokenizer] = field(default_factory=dict)  # by text column
    transforms: Mapping[str, object] = field(default_factory=dict)  # by column; "*": of the others
    roles: Mapping[str, str] = field(default_factory=dict)  # by column
    split: Mapping[str, Any] = field(default_factory=dict)  # see `mmdb.data.split`

    @property
    def named(self) -> set[str]:
        """The names of columns that options speak of."""
        split = [str(column)] if (column := self.split.get("column")) else []
        more = (self.roles, self.tokenize, *self.inputs.values(), split)
        return {name for names in (self.labels, self.transforms, *more) for name in names}

    @classmethod
    def parse(cls, options: Mapping[str, object] | None) -> Options:
        """Return the options of a call.

        Raises:
            InvalidOption: a name is unknown, a value has the wrong type or range, or two options
                contradict each other.
        """
        if not isinstance(options, Mapping | None):
            raise InvalidOption(
                f"options is not a mapping: {show(options)}.",
                hint='Pass a dict, such as {"roles": {"id": "key"}}; json.loads reads a text.',
            )
        given: dict[str, Any] = {}
        known = [field.name for field in fields(cls)]
        for name, value in (options or {}).items():
            if name not in known:
                raise InvalidOption(
                    f"There is no option {show(name)}.", hint=f"Options: {', '.join(known)}."
                )
            if value is not None or name.startswith("max_"):
                given[name] = _PARSERS[name](name, value)
        parsed = cls(**given)
        _check_together(parsed)
        return parsed


def _check_together(options: Options) -> None:
    if options.inputs and options.shape is not None:
        raise InvalidOption(
            "Option shape is for a dataset of one input.",
            hint='Pass shapes, such as {"image": [1, 8, 8]}.',
        )
    for name in options.shapes:
        if name not in options.inputs:
            raise InvalidOption(
                f"Option shapes names {name!r}, which is none of the inputs.",
                hint=f"Inputs: {', '.join(options.inputs) or 'none; pass shape'}.",
            )


def _positive(name: str, value: object) -> int:
    if not is_whole(value, 1, 2**31 - 1):
        raise InvalidOption(
            f"Option {name} must be a positive integer.", hint=f"It is {show(value)}."
        )
    return value


def _shape(name: str, value: object) -> tuple[int, ...]:
    if _is_list(value) and value and all(is_whole(size, 1, 2**31 - 1) for size in value):
        return tuple(value)
    raise InvalidOption(
        f"Option {name} must be a list of positive integers.",
        hint=f"It is {show(value)}; pass the sizes of one row, such as [3, 32, 32].",
    )


def _task(name: str, value: object) -> Task:
    for task in TASKS:
        if value == task:
            return task
    raise unfit(f"Option {name}", value, f"It is one of {_TASKS}.")


def _columns(name: str, value: object) -> tuple[str, ...]:
    if not _is_list(value) or not all(isinstance(column, str) for column in value):
        raise InvalidOption(
            f"Option {name} must be a list of columns.",
            hint=f'It is {show(value)}; pass names, such as ["age"].',
        )
    twice = next((column for column in value if value.count(column) > 1), None)
    if twice is not None:
        raise InvalidOption(
            f"Option {name} names column {show(twice)} twice.", hint="Name it once."
        )
    return tuple(value)


def _mapping(name: str, value: object) -> Mapping[str, object]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidOption(
            f"Option {name} must be an object by name.",
            hint=f"It is {show(value)}; {_BY_NAME[name.partition('.')[0]]}",
        )
    return value


def _shapes(name: str, value: object) -> Mapping[str, tuple[int, ...]]:
    return {key: _shape(f"{name}.{key}", shape) for key, shape in _mapping(name, value).items()}


def _tasks(name: str, value: object) -> Mapping[str, Task]:
    return {key: _task(f"{name}.{key}", task) for key, task in _mapping(name, value).items()}


def _inputs(name: str, value: object) -> Mapping[str, tuple[str, ...]]:
    given = _mapping(name, value)
    if len(given) < 2:
        raise InvalidOption(
            "Option inputs names fewer than two inputs.",
            hint="Leave it out: every column is then a feature of the only input.",
        )
    found: dict[str, tuple[str, ...]] = {}
    taken: dict[str, str] = {}
    for key in sorted(given):  # the order in JSON means nothing
        if not key.isidentifier() or not key.isascii() or iskeyword(key) or key == "self":
            raise InvalidOption(
                f"Input {key!r} cannot be a parameter of a model's forward.",
                hint="Use a Python name, such as image.",
            )
        found[key] = _columns(f"{name}.{key}", given[key])
        if not found[key]:
            raise InvalidOption(
                f"Input {key!r} has no column.", hint="Name its columns, or leave the input out."
            )
        for column in found[key]:
            if column in taken:
                raise InvalidOption(
                    f"Column {column!r} is in the inputs {taken[column]!r} and {key!r}.",
                    hint="Leave it in one; the query can return it twice, under two names.",
                )
            taken[column] = key
    return found


def _transforms(name: str, value: object) -> Mapping[str, object]:
    return {"*": value} if isinstance(value, str) else _mapping(name, value)


def _roles(name: str, value: object) -> Mapping[str, str]:
    found = _mapping(name, value)
    for column, role in found.items():
        if role not in ROLES:
            raise unfit(f"Option {name}.{column}", role, f"Roles: {', '.join(ROLES)}.")
    return cast("Mapping[str, str]", found)


def _tokenize(name: str, value: object) -> Mapping[str, Tokenizer]:
    return {key: _tokenizer(f"{name}.{key}", given) for key, given in _mapping(name, value).items()}


def _tokenizer(name: str, value: object) -> Tokenizer:
    given = dict(_mapping(name, value))
    unknown = sorted(set(given) - {"function", "length", "vocabulary", "pad", "end", "pack"})
    if unknown:
        raise InvalidOption(
            f"Option {name} has no {unknown[0]!r}.",
            hint="Known: function, length, vocabulary, pad, end, pack.",
        )
    function, length = given.get("function"), given.get("length")
    if not isinstance(function, str):
        raise InvalidOption(
            f"Option {name}.function must name a tokenizer.",
            hint=f"Built in: {', '.join(BUILT_IN)}; others are registered.",
        )
    if not is_whole(length, 1, MAX_LENGTH):
        raise InvalidOption(
            f"Option {name}.length must be from 1 to {MAX_LENGTH} tokens.",
            hint=f"It is {show(length)}; longer texts are cut, shorter ones filled.",
        )
    vocabulary = given.get("vocabulary", DEFAULT_VOCABULARY if function == "words" else None)
    if function != "words" and vocabulary is not None:
        raise InvalidOption(
            f"Option {name}.vocabulary is for the tokenizer 'words' alone.", hint="Leave it out."
        )
    if function == "words" and not is_whole(vocabulary, 2, MAX_ID):
        raise InvalidOption(
            f"Option {name}.vocabulary must be from 2 to {MAX_ID}.",
            hint=f"It is {show(vocabulary)}; {DEFAULT_VOCABULARY} if left out.",
        )
    for key, what in (("pad", "fills rows up"), ("end", "ends a text")):
        value = given.get(key)
        if value is not None and (function in BUILT_IN or not is_whole(value, 0, MAX_ID)):
            raise InvalidOption(
                f"Option {name}.{key} is {show(value)}.",
                hint=f"It is the id that {what}; what is built in has its own.",
            )
    return Tokenizer(
        function=function,
        length=length,
        vocabulary=cast("int | None", vocabulary),
        pad=cast("int | None", given.get("pad")),
        end=cast("int | None", given.get("end")),
        pack=check_flag(given.get("pack", False), f"{name}.pack"),
    )


def _is_list(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


_PARSERS = {
    "shape": _shape,
    "max_categories": _positive,
    "max_classes": _positive,
    "task": _task,
    "labels": _columns,
    "tasks": _tasks,
    "inputs": _inputs,
    "shapes": _shapes,
    "tokenize": _tokenize,
    "transforms": _transforms,
    "roles": _roles,
    "split": _mapping,
}
