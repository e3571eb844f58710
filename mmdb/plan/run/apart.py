"""Strangers' models, followed in a process of its own: their code may end it, or never return."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

import numpy as np

from mmdb.errors import MmdbError, stops_the_caller
from mmdb.plan.run.built import REMEMBERED, Recorded, recorded
from mmdb.plan.work.update import Update
from mmdb.plan.work.work import Line, Work
from mmdb.train.values.runtime import end

_known: dict[str, Recorded] = {}
_ARRAYS: Mapping[str, Any] = {"NDArray[np.int64]": np.int64, "NDArray[np.bool_]": np.bool_}
#: Runs work that may take long, and no longer than someone allows.
Within = Callable[[Callable[[], None]], None]


def follow_apart(texts: Sequence[str], within: Within) -> Mapping[str, Recorded]:
    """Return what `recorded` says of each text, or why there is nothing to be said.

    Args:
        within: runs the conversation with the process, which ends with it.
    """
    found = {text: _known[text] for text in texts if text in _known}
    missing = [text for text in texts if text not in found]
    if missing:
        found |= _asked(missing, within)
    for text, one in found.items():
        if not isinstance(one, str) and len(_known) < REMEMBERED:
            _known[text] = one
    return found


def _asked(texts: Sequence[str], within: Within) -> dict[str, Recorded]:
    found: dict[str, Recorded] = {}
    paths = os.pathsep.join(p for p in sys.path if p)
    process = subprocess.Popen(
        [sys.executable, "-m", "mmdb.plan.run.apart"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        start_new_session=True,  # a Ctrl-C is for the owner, which then ends it
    )

    def speak() -> None:
        assert process.stdin and process.stdout
        for text in texts:
            try:
                process.stdin.write(text + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except (OSError, ValueError):
                return
            if not line.endswith("\n"):
                return
            found[text] = _read(json.loads(line))

    why = "its code ended the process that followed it"
    try:
        within(speak)
    except MmdbError as error:
        if stops_the_caller(error):
            raise
        why = error.message
    finally:
        end(process)
    return {text: found.get(text, why) for text in texts}


def _written(found: Recorded) -> Any:
    if isinstance(found, str):
        return found
    work, shapes = found
    values = {field.name: _plain(getattr(work, field.name)) for field in fields(work)}
    return [values, [list(shape) for shape in shapes]]


def _plain(value: Any) -> Any:
    if isinstance(value, Line):
        return [value.fixed.tolist(), value.row.tolist()]
    if isinstance(value, np.ndarray):
        return value.tolist()
    return asdict(value) if isinstance(value, Update) else value


def _read(raw: Any) -> Recorded:
    if isinstance(raw, str):
        return raw
    values, shapes = raw
    made = {field.name: _typed(str(field.type), values[field.name]) for field in fields(Work)}
    return Work(**made), tuple(tuple(shape) for shape in shapes)


def _typed(kind: str, value: Any) -> Any:
    """Return a value of a field of `Work`, by its annotation, as it was before JSON."""
    if kind == "Line":
        return Line(*(np.array(one, dtype=float) for one in value))
    if kind in _ARRAYS:
        return np.array(value, dtype=_ARRAYS[kind])
    if kind == "Update":
        return Update(**value)
    return tuple(value) if isinstance(value, list) else value


def main() -> None:
    """Follow what comes in, a text a line, until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a user's module prints must not end up among the answers
    for line in sys.stdin:
        print(json.dumps(_written(recorded(line.rstrip("\n")))), file=out, flush=True)


if __name__ == "__main__":
    main()
