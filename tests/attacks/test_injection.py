"""Text that is SQL, code or a path, in every text argument of every function of mmdb."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from mmdb.db.postgres import translate_error
from mmdb.server.declarations import Declaration, declarations
from tests.attacks.scene import Scene

#: What is no harm in a text, and so much harm in SQL, a shell, Python or a path.
TEXTS = (
    "x'; CREATE TABLE stolen (a int); --",
    'x"; CREATE TABLE stolen (a int); --',
    "$$; CREATE TABLE stolen (a int); $$",
    "%s %(name)s {0.__class__} {{7*7}}",
    "$(touch {canary}) `touch {canary}` | touch {canary}",
    "__import__('os').system('touch {canary}')",
    "r@1@1@-1",
    PATH := "../../../../../etc/passwd",
)
OBJECTS = (
    {"x'; CREATE TABLE stolen (a int); --": "x"},
    {"__class__": {"__init__": ["os.system", "touch {canary}"]}},
    {"space": {"lr": ["x'; CREATE TABLE stolen (a int); --"]}},
    ["x"],
    "x",
)
#: Arguments that are kept, or compared, as any text whatever: they are not refused for what it is.
FREE = {
    ("tag_model", "key"),
    ("tag_model", "value"),
    ("note_model", "note"),
    ("log_metric", "metric"),
    ("log_metric", "dataset"),
    ("match", "metric"),
    ("zoo_admit", "reason"),
    ("zoo_refuse", "reason"),
}
#: Arguments with which a call would do what it is asked.
GOOD: dict[str, Any] = {
    "name": "new",
    "query": "SELECT id, a FROM points",
    "label": "y",
    "dataset": "d",
    "architecture": "linear",
    "run": "s",
    "model": "r",
    "a": "r@1",
    "b": "r@1",
    "alias": "prod",
    "key": "id",
    "path": "weight",
    "entity": "model:r@1",
    "target": "mmdb.graph.factories:linear",
    "kind": "loss",
    "value": "x",
    "metric": "accuracy",
    "note": "x",
    "reason": "x",
    "strategy": "mop",
    "role": "attack_reader",
}
NUMBERS = {"version": 1, "k": 1, "epoch": 0}
#: Functions that would train, measure or wait for long where the argument is the last one checked.
LONG = ("train", "calibrate", "warm_up", "manage_zoo")

CASES = [
    (declared, argument.name)
    for declared in declarations()
    for argument in declared.arguments
    if argument.type in ("text", "jsonb") and declared.returns and declared.name not in LONG
]


@pytest.mark.parametrize(
    ("declared", "argument"), CASES, ids=lambda x: x if isinstance(x, str) else x.name
)
def test_a_text_is_refused_or_kept_as_it_is(
    scene: Scene, declared: Declaration, argument: str
) -> None:
    session, canary = scene.session("trainer"), scene.folder / "canary"
    before = scene.fingerprint()
    kinds = {a.name: a.type for a in declared.arguments}
    payloads: tuple[object, ...] = OBJECTS if kinds[argument] == "jsonb" else TEXTS
    if (declared.name, argument) == ("match", "metric"):
        payloads = payloads[:1]  # each is a search of the whole zoo
    for payload in payloads:
        text = (payload if isinstance(payload, str) else json.dumps(payload)).replace(
            "{canary}", str(canary)
        )
        if kinds[argument] == "jsonb" and isinstance(payload, str):
            text = json.dumps(text)
        try:
            with session.transaction(force_rollback=True):
                session.execute(*_call(scene, declared, {argument: text}))
                accepted = True
                made = session.execute("SELECT to_regclass('public.stolen')").fetchone()
                assert made == (None,), f"{declared.name}({argument} => {text!r})"
        except psycopg.Error as error:
            accepted = False
            known = translate_error(error)
            assert known.sqlstate.startswith("MM"), f"{text!r}: {error}"
            assert known.sqlstate != "MM408", f"{declared.name}({argument} => {text!r}): {error}"
        is_name = argument in ("name", "alias") and text == PATH  # of no file: see test_files.py
        may = is_name or (declared.name, argument) in FREE or kinds[argument] == "jsonb"
        assert not accepted or may, f"{declared.name}({argument} => {text!r}) was accepted"
    assert not canary.exists()
    assert scene.fingerprint() == before


def _call(scene: Scene, declared: Declaration, given: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Return a call of a function with what it needs besides the attack."""
    values: dict[str, Any] = {}
    for argument in declared.arguments:
        name = argument.name
        if name in given:
            values[name] = given[name]
        elif argument.default is None:
            values[name] = _good(scene, name, argument.type)
    types = {a.name: a.type for a in declared.arguments}
    marks = ", ".join(f"{name} => %({name})s::{types[name]}" for name in values)
    return f"SELECT * FROM mmdb.{declared.name}({marks})", values


def _good(scene: Scene, name: str, kind: str) -> Any:
    if name == "x":
        return [1.0] if kind == "real[]" else json.dumps({"a": 1.0})
    if name == "part_ids":
        return [scene.ids["part"]]
    if name in ("candidate_id", "part_id"):
        return scene.ids[name.removesuffix("_id")]
    if kind == "jsonb":
        return "{}"
    return GOOD[name] if kind == "text" else NUMBERS.get(name, 1)
