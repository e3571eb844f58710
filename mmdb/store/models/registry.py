"""What people say about models: aliases, tags, metrics and notes; and dropping them.

Searching takes no function: `mmdb.model_overview`, `tag_overview`, `metric_overview`,
`model_alias` and `note_overview` are views.
"""

from __future__ import annotations

import math
import re
from contextlib import suppress
from dataclasses import dataclass
from numbers import Real

from mmdb.data.names import check_name
from mmdb.db.connection import Connection
from mmdb.db.owners import require_owner
from mmdb.db.queries import load
from mmdb.errors import AliasNotFound, InvalidName, InvalidOption, ModelInUse, ModelNotFound
from mmdb.messages import show
from mmdb.store.models.model_rows import SavedModel, find_model

_Q = load("registry")
_VERSION = re.compile(r"\d+", re.ASCII)
_KEY_LENGTH = 200
#: The longest tag's value and name of what a metric is of, which indexes hold; the longest note.
TAG_BYTES, DATASET_BYTES, NOTE_BYTES = 2000, 1000, 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """A model that was just dropped."""

    name: str
    version: int
    bytes: int  # that `gc` can free: stored, and needed by no other model as things are


def set_alias(connection: Connection, model: str, version: int | None, alias: str) -> str:
    """Let an alias point at a version of a model; return that as `name@version`.

    Args:
        model: a name; without `version` also `name@version` or `name@alias`.
        alias: 1 to 200 letters, digits, '_', '-', '.' and '/', and not digits alone.
    Raises:
        ModelNotFound: there is no such version, or it is dropped.
        InvalidName: of the alias.
        RightsMissing: the version, or the one that the alias is at, is another role's.
    """
    if _VERSION.fullmatch(check_name(alias)):
        raise InvalidName(f"{alias!r} would be taken for a version.", hint="Add a letter to it.")
    with connection.transaction():
        found = find_model(connection, _at(model, version))
        require_owner(connection, "model", found.reference, found.model_id)
        _check_alias(connection, found.name, alias)
        if not connection.rows(_Q.hold_model, model_id=found.model_id):
            raise ModelNotFound(f"Model {found.reference!r} has just been dropped.")
        connection.run(_Q.add_alias_event, model=found.name, alias=alias, version=found.version)
    return found.reference


def drop_alias(connection: Connection, model: str, alias: str) -> str:
    """Take an alias away; return the `name@version` that it was at.

    Raises:
        AliasNotFound
        RightsMissing: the version that it is at is another role's.
    """
    with connection.transaction():
        found = _check_alias(connection, model, alias)
        if not found:
            raise AliasNotFound(f"Model {show(model)} has no alias {show(alias)}.")
        connection.run(_Q.add_alias_event, model=model, alias=alias, version=None)
    return f"{model}@{found}"


def rollback_alias(connection: Connection, model: str, alias: str) -> str:
    """Let an alias point at where it was before its last move; return that as `name@version`.

    Called again, it goes back further: moves back and forth count as taken back.

    Raises:
        AliasNotFound: it is nowhere, or was nowhere else.
        ModelNotFound: the version where it was has been dropped.
        RightsMissing: a version is another role's.
    """
    with connection.transaction():
        at = _check_alias(connection, model, alias)
        places: list[int] = []
        for row in connection.rows(_Q.find_alias_events, model=model, alias=alias):
            if row["version"] is None:
                continue
            if row["version"] in places:  # a move back
                del places[places.index(row["version"]) :]
            places.append(row["version"])
        if at is None or len(places) < 2:
            raise AliasNotFound(
                f"Alias {show(alias)} of model {show(model)} was at no other version.",
                hint="SELECT * FROM mmdb.alias_history shows where it has been.",
            )
        return set_alias(connection, model, places[-2], alias)


def _check_alias(connection: Connection, model: str, alias: str) -> int | None:
    """Return the version that an alias is at, if it is at one, and that is not another role's."""
    found = connection.rows(_Q.find_alias, model=model, alias=alias)
    version: int | None = found[0]["version"] if found else None
    if version is not None:
        for row in connection.rows(load("models").find_version, name=model, version=version):
            require_owner(connection, "model", f"{model}@{version}", row["model_id"])
    return version


def tag_model(connection: Connection, model: str, key: str, value: str | None) -> str:
    """Give a model a tag, or take it away where `value` is None; return `name@version`.

    Raises:
        ModelNotFound, InvalidName
        InvalidOption: the value is longer than TAG_BYTES.
        RightsMissing: the model is another role's.
    """
    _check_key(key)
    if value is not None:
        _check_length("tag", value, TAG_BYTES)
    found = find_model(connection, model)
    require_owner(connection, "model", found.reference, found.model_id)
    if value is None:
        connection.run(_Q.delete_tag, model_id=found.model_id, key=key)
    else:
        connection.run(_Q.put_tag, model_id=found.model_id, key=key, value=value)
    return found.reference


def log_metric(
    connection: Connection, model: str, metric: str, value: float, *, dataset: str = ""
) -> str:
    """Give a model a metric, in place of an older value; return `name@version`.

    Args:
        dataset: what it was measured on.
    Raises:
        ModelNotFound, InvalidName
        InvalidOption: the value is NaN or no number, or the dataset's name is longer than any.
        RightsMissing: the model is another role's.
    """
    value = checked_metric(metric, value)
    if not isinstance(dataset, str):
        raise InvalidOption(f"The dataset is {show(dataset)}.", hint="Pass a text, or none.")
    _check_length("dataset's name", dataset, DATASET_BYTES)
    found = find_model(connection, model)
    require_owner(connection, "model", found.reference, found.model_id)
    connection.run(
        _Q.put_metric,
        model_id=found.model_id,
        metric=metric,
        dataset=dataset,
        value=value,
    )
    return found.reference


def checked_metric(metric: str, value: float) -> float:
    """Return a metric's value as a plain number.

    Raises:
        InvalidName
        InvalidOption: the value is NaN or no number.
    """
    _check_key(metric)
    with suppress(OverflowError):  # above every float
        if isinstance(value, (float, int, Real)) and not math.isnan(value):
            return float(value)
    raise InvalidOption(f"The metric {metric!r} is {show(value)}.", hint="Pass a number.")


def note_model(connection: Connection, model: str, note: str) -> str:
    """Write a note about a model; return `name@version`.

    Raises:
        ModelNotFound
        InvalidOption: there is no text in it, or more than NOTE_BYTES.
    """
    if not isinstance(note, str) or not note.strip():
        raise InvalidOption("The note is empty.", hint="Pass a text.")
    _check_length("note", note, NOTE_BYTES)
    found = find_model(connection, model)
    connection.run(_Q.add_note, model_id=found.model_id, note=note)
    return found.reference


def drop_model(connection: Connection, model: str, version: int | None = None) -> Dropped:
    """Drop one version of a model; its row stays as lineage, `gc` takes its tensors later.

    The number of the version is never used again.

    Args:
        model: a name; without `version` also `name@version`, or a name with one version.
    Raises:
        ModelNotFound
        InvalidOption: the name has several versions, and none was chosen.
        ModelInUse: an alias is at it, or another model's recipe begins with it or needs its
            layers.
        RightsMissing: it is another role's.
    """
    with connection.transaction():
        found = find_model(connection, _at(model, version))
        _check_chosen(connection, model, version, found)
        require_owner(connection, "model", found.reference, found.model_id)
        _check_unused(connection, found)
        if not connection.rows(_Q.mark_dropped, model_id=found.model_id):
            raise ModelNotFound(f"Model {found.reference!r} has just been dropped.")
        _check_unused(connection, found)  # whoever held the row may have begun to use it
        (row,) = connection.rows(_Q.own_bytes, model_id=found.model_id)
    return Dropped(name=found.name, version=found.version, bytes=row["bytes"])


def withdraw(connection: Connection, model: SavedModel, new: SavedModel | None = None) -> None:
    """Drop a version although others need it; its aliases move to another version, or are gone.

    The caller has begun the transaction.

    Raises:
        RightsMissing: it is another role's.
    """
    require_owner(connection, "model", model.reference, model.model_id)
    for row in connection.rows(_Q.find_aliases, model=model.name, version=model.version):
        version = None if new is None else new.version
        connection.run(_Q.add_alias_event, model=model.name, alias=row["alias"], version=version)
    connection.rows(_Q.mark_dropped, model_id=model.model_id)


def _at(model: str, version: int | None) -> str:
    return model if version is None or model is None else f"{model}@{version}"


def _check_length(what: str, text: object, most: int) -> None:
    size = len(text.encode(errors="replace")) if isinstance(text, str) else 0
    if size > most:
        raise InvalidOption(
            f"The {what} has {size:,} bytes; {most:,} is the most.",
            hint="Keep what is longer in a table of your own.",
        )


def _check_key(key: object) -> None:
    if not isinstance(key, str) or not 1 <= len(key) <= _KEY_LENGTH or not key.isprintable():
        raise InvalidName(
            f"{show(key)} cannot name a tag or a metric.",
            hint=f"Use 1 to {_KEY_LENGTH} printable characters.",
        )


def _check_chosen(
    connection: Connection, model: str, version: int | None, found: SavedModel
) -> None:
    if version is not None or "@" in model:
        return
    (row,) = connection.rows(_Q.count_versions, name=found.name)
    if row["versions"] > 1:
        raise InvalidOption(
            f"Model {model!r} has {row['versions']} versions.",
            hint=f"Say which one to drop, such as {found.reference!r}.",
        )


def _check_unused(connection: Connection, found: SavedModel) -> None:
    aliases = connection.rows(_Q.find_aliases, model=found.name, version=found.version)
    if aliases:
        alias = aliases[0]["alias"]
        raise ModelInUse(
            f"Model {found.reference!r} is pinned by alias {alias!r}.",
            hint=f"Move the alias to another version, or take it away with "
            f"drop_alias({found.name!r}, {alias!r}).",
        )
    needing = connection.rows(_Q.find_needing, model_id=found.model_id)
    if needing:
        other = f"{needing[0]['name']}@{needing[0]['version']}"
        raise ModelInUse(
            f"Model {found.reference!r} is where the recipe of model {other!r} begins.",
            hint=_keep_otherwise(other),
        )
    frozen = connection.rows(load("features").find_recipes_on, model_id=found.model_id)
    if frozen:
        other = f"{frozen[0]['name']}@{frozen[0]['version']}"
        raise ModelInUse(
            f"The recipe of model {other!r} needs layers of model {found.reference!r}.",
            hint=_keep_otherwise(other),
        )


def _keep_otherwise(other: str) -> str:
    return f"Save what {other!r} recovers to as a snapshot, and drop {other!r} first."
