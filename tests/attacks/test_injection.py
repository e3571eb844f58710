"""Text that is SQL, code or a path, in every text argument of every function of mmdb."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mmdb.db.postgres import translate_error
from mmdb.server.calls import Argument, Declaration, declarations
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
    ("forget", "note"),
    ("log_metric", "metric"),
    ("log_metric", "dataset"),
    ("match", "metric"),
    ("zoo_admit", "reason"),
    ("zoo_refuse", "reason"),
    ("note_unscored", "sqlstate"),
    ("note_unscored", "message"),
    ("embed_into", "into_column"),  # of a table that it makes
}
#: Arguments with which a call does what it is asked: test_without_an_attack_a_call_is_accepted.
GOOD: dict[str, Any] = {
    "name": "new",
    "into_column": "guess",
    "grows": "a",
    "condition": "a < 1",
    "models": "withdraw",
    "keys": "{1}",
    "sqlstate": "MM156",
    "message": "x",
    "statement": "SELECT 1",
    "every": "1 day",
    "starts": "2030-01-01 00:00+00",
    "budget": "5 min",
    "per": None,  # an index, which dataset "d" has not
    "query": "SELECT id, a FROM points",
    "label": "y",
    "dataset": "d",
    "data": "d",
    "slice": "train",
    "by": None,  # a column of a query, which "data" is not
    "positive": "1",
    "method": "shapley",
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
    "warm_start": "off",
    "approach": "auto",
    "direction": "up",
    "layer": "1",
    "embedding": '{"layer": "head", "type": "real[]"}',
    "value": "x",
    "metric": "accuracy",
    "note": "x",
    "reason": "x",
    "strategy": "mop",
    "role": "attack_reader",
    "prompt": "once",
    "parent": "r",
    "format": "torch",
}
NUMBERS = {"version": 1, "k": 1, "epoch": 0}
#: What a function needs where that is something else, or where nothing is given by default.
GOOD_FOR: dict[str, dict[str, Any]] = {
    "create_dataset": {"query": "SELECT a, y FROM points"},
    "drop_dataset": {"name": "d", "force": True},
    "evaluate": {"metrics": '["accuracy"]'},
    "compare_models": {"metrics": '["accuracy"]'},
    "thresholds": {"goal": '{"recall": 0.1}'},
    "calibrate_model": {"method": "temperature", "goal": '{"recall": 0.1}'},
    "importance": {"query": "SELECT a, y FROM points"},
    "explain_predict": {"baseline": '{"a": 1}'},
    "training_rows": {"query": "SELECT a, y FROM points", "trained": "SELECT * FROM points"},
    "unschedule": {"name": "nightly"},
    "score_on_insert": {"target": "own.fresh"},
    "embed_on_insert": {"target": "own.fresh", "into_column": "vector", "layer": "head"},
    "embed": {"layer": "head"},
    "embed_into": {"target": "own.embeddings", "into_column": "vector", "layer": "head"},
    "stop_scoring": {"target": "own.scored"},
    "score_rows": {"target": "own.scored"},
    "predict_rows": {
        "types": "{float,integer}",
        "rows": "{}",  # of none it is told that they are no records
    },
    "save_candidate": {"candidate_id": "{trained}"},
    "clone_candidate": {"candidate_id": "{trained}", "config": '{"lr": 0.01}'},
    "drop_alias": {"alias": "good"},
    "rollback_alias": {"alias": "good"},
    "refresh_dataset": {"name": "d"},
    "begin_retraining": {"mode": "scratch"},
    "forget": {"condition": "a < 1"},
    "end_retraining": {"gate": '{"at_least": 0}'},
    "common_prefix": {"dataset": "d"},
    "accept_parent": {"model": "q", "parent": "r@1"},
    "drop_model": {"model": "q"},
    "import_model": {
        "path": "net.pt",
        "architecture": "linear",
        "dataset": "d",
        "key": "weights",
        "name": "new",
    },
    "attach": {"model": "bare", "dataset": "d", "architecture": "linear"},
    "tensor_values": {"path": "head.weight"},
    "predict_into": {"target": "own.predictions"},
    "register_function": {"target": "torch.nn.functional:cross_entropy"},
    "measure": {"detail": '{"what": "queries", "budget_s": 0.01}'},
    "run_order": {"detail": '{"part_id": {part}, "candidate_id": {candidate}, "epoch": 0}'},
    "train_group": {
        "member": '{"name": "x", "rank": 0, "size": 1, "host": "127.0.0.1", "port": 1,'
        ' "timeout_s": 0.01}'
    },
}
#: What a call, or one with some argument, gets as far as missing: features, a key, a model of
#: numbers.
NOT_IN_SCENE = {
    ("drop_features", "layer"): "of the layer '1'",
    ("refresh_dataset", "grows"): "have no key",
    ("residuals", ""): "is no number",
    ("predict_rows", ""): "no records of",
    ("generate", ""): "does not predict next tokens",
    ("end_retraining", ""): "retrains a model",
    ("rollback_alias", ""): "was at no other version",
}
#: Errors of a call that did not stop at the text: no rights for what it said, or no error of mmdb.
RUN_ON = ("MM407", "MM408")
#: Functions that would train, measure or wait for long where the argument is the last one checked.
LONG = ("train", "retrain", "remake", "calibrate", "warm_up", "manage_zoo")

CASES = [
    (declared, argument.name)
    for declared in declarations()
    for argument in declared.arguments
    if argument.type in ("text", "jsonb") and declared.returns and declared.name not in LONG
]


EACH = pytest.mark.parametrize(
    ("declared", "argument"), CASES, ids=lambda x: x if isinstance(x, str) else x.name
)


@EACH
def test_without_an_attack_a_call_is_accepted(
    scene: Scene, declared: Declaration, argument: str
) -> None:
    """So nothing but the attack is what a call is refused for."""
    (kind,) = (a.type for a in declared.arguments if a.name == argument)
    call = _call(scene, declared, {argument: _good(scene, declared.name, argument, kind)})
    says = NOT_IN_SCENE.get((declared.name, argument)) or NOT_IN_SCENE.get((declared.name, ""))
    found = pytest.raises(psycopg.Error, match=says) if says else nullcontext()
    session = _session(scene, declared)
    with found, session.transaction(force_rollback=True):
        session.execute(*call)


@EACH
def test_a_text_is_refused_or_kept_as_it_is(
    scene: Scene, declared: Declaration, argument: str
) -> None:
    kinds = {a.name: a.type for a in declared.arguments}
    payloads: Sequence[object] = OBJECTS if kinds[argument] == "jsonb" else TEXTS
    if (declared.name, argument) == ("match", "metric"):
        payloads = payloads[:1]  # each is a search of the whole zoo
    attack(scene, declared, argument, payloads)


#: Bodies of functions that do what an attack asks for, the attack, and how that is seen.
FALLS = (
    ("EXECUTE format('SELECT ''%s''', note)", TEXTS[0], "made a table"),
    ("EXECUTE format('CREATE TEMP TABLE \"%s\" ()', note)", TEXTS[1], "42601"),
    ("EXECUTE format('SELECT $$%s$$', note)", TEXTS[2], "42601"),
    ("PERFORM format(note, 1)", TEXTS[3], "22023"),
    (
        "EXECUTE format('COPY points TO PROGRAM %L', 'cat >/dev/null; true ' || note)",
        TEXTS[4],
        "ran a program",
    ),
    ("PERFORM 1", PATH, "was accepted"),
)


@pytest.mark.parametrize(("body", "payload", "seen"), FALLS, ids=[seen for *_, seen in FALLS])
def test_a_function_that_falls_for_an_attack_is_found(
    scene: Scene, body: str, payload: str, seen: str
) -> None:
    note = Argument(name="note", type="text", default=None)
    leaky = Declaration(
        name="leaky", arguments=(note,), columns=(), returns="void", module="", function=""
    )
    scene.owner.execute(
        "CREATE FUNCTION mmdb.leaky(note text) RETURNS void LANGUAGE plpgsql SECURITY DEFINER"
        f" AS $f$ BEGIN {body}; END $f$"
    )
    try:
        with pytest.raises(AssertionError, match=seen):
            attack(scene, leaky, "note", [payload])
    finally:
        scene.owner.execute("DROP FUNCTION mmdb.leaky")
        _canary(scene).unlink(missing_ok=True)


def attack(scene: Scene, declared: Declaration, argument: str, payloads: Sequence[object]) -> None:
    """Give an argument payloads; fail if one does harm, or is accepted where none may be."""
    session, canary = _session(scene, declared), _canary(scene)
    before = scene.fingerprint()
    kinds = {a.name: a.type for a in declared.arguments}
    for payload in payloads:
        text = (payload if isinstance(payload, str) else json.dumps(payload)).replace(
            "{canary}", str(canary)
        )
        if kinds[argument] == "jsonb" and isinstance(payload, str):
            text = json.dumps(text)
        call = f"{declared.name}({argument} => {text!r})"
        try:
            with session.transaction(force_rollback=True):
                session.execute(*_call(scene, declared, {argument: text}))
                accepted = True
                made = session.execute("SELECT to_regclass('public.stolen')").fetchone()
                assert made == (None,), f"{call} made a table"
        except psycopg.Error as error:
            accepted = False
            known = translate_error(error)
            assert known.sqlstate.startswith("MM"), f"{call}: {error}"
            assert known.sqlstate not in RUN_ON, f"{call}: {error.sqlstate} {error}"
        assert not canary.exists(), f"{call} ran a program"
        is_name = argument in ("name", "alias") and text == PATH  # of no file: see test_files.py
        may = is_name or (declared.name, argument) in FREE or kinds[argument] == "jsonb"
        assert not accepted or may, f"{call} was accepted"
    assert scene.fingerprint() == before


def _canary(scene: Scene) -> Path:
    """Return a file that the server's user may write, as a program that it ran would."""
    return scene.cluster.directory / "canary"


def _session(scene: Scene, declared: Declaration) -> Any:
    """Return a session of the least role that may call a function."""
    if declared.name.startswith("register_"):
        return scene.session("owner")
    return scene.session("admin" if declared.name == "forget" else "trainer")


def _call(scene: Scene, declared: Declaration, given: dict[str, str]) -> tuple[str, dict[str, Any]]:
    """Return a call of a function with what it needs besides the attack."""
    values: dict[str, Any] = {}
    for argument in declared.arguments:
        name = argument.name
        if name in given:
            values[name] = given[name]
        elif argument.default is None or name in GOOD_FOR.get(declared.name, {}):
            values[name] = _good(scene, declared.name, name, argument.type)
    types = {a.name: a.type for a in declared.arguments}
    marks = ", ".join(f"{name} => %({name})s::{types[name]}" for name in values)
    return f"SELECT * FROM mmdb.{declared.name}({marks})", values


def _good(scene: Scene, function: str, name: str, kind: str) -> Any:
    own = GOOD_FOR.get(function, {}).get(name)
    if isinstance(own, str):
        for known, number in scene.ids.items():
            own = own.replace(f"{{{known}}}", str(number))
    if own is not None:
        return own
    if name == "x":
        return [1.0] if kind == "real[]" else json.dumps({"a": 1.0})
    if name == "part_ids":
        return [scene.ids["part"]]
    if name in ("candidate_id", "part_id"):
        return scene.ids[name.removesuffix("_id")]
    if kind == "jsonb":
        return "{}"
    return GOOD[name] if kind == "text" else NUMBERS.get(name, 1)
