"""What TensorBoard's HParams plugin reads: a table of configurations and what they reached.

Messages: https://github.com/tensorflow/tensorboard, `tensorboard/plugins/hparams/api.proto` and
`plugin_data.proto`. Field numbers are those of these files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from mmdb.standards.tensorboard.events import double, message, plugin_event, text, whole

_PLUGIN = "hparams"
_STRING, _BOOL, _FLOAT = 1, 2, 3
SUCCESS, FAILURE, RUNNING = 1, 2, 3

Scalar = float | bool | str


def flat(config: Mapping[str, Any]) -> dict[str, Scalar]:
    """Return a configuration with one number, truth value or text for each key.

    >>> flat({"lr": 0.1, "optimizer": {"name": "sgd", "momentum": 0.9}, "architecture.hidden": [8]})
    {'lr': 0.1, 'optimizer': 'sgd', 'optimizer.momentum': 0.9, 'hidden': '[8]'}
    """
    found: dict[str, Scalar] = {}
    for key, value in config.items():
        key = key.removeprefix("architecture.")
        if isinstance(value, Mapping) and "name" in value:
            rest = {f"{key}.{name}": v for name, v in value.items() if name != "name"}
            found |= {key: str(value["name"])} | flat(rest)
        elif isinstance(value, bool | str):
            found[key] = value
        elif isinstance(value, int | float):
            found[key] = float(value)
        elif value is not None:
            found[key] = json.dumps(value)
    return found


def experiment_event(
    name: str, configs: Sequence[Mapping[str, Scalar]], metrics: Sequence[str], created_at: float
) -> bytes:
    """Return the record that names the hyper-parameters and the metrics of a table.

    Args:
        metrics: tags of scalars, the first of which comes first in the table.
    """
    values: dict[str, dict[Scalar, None]] = {}
    for config in configs:
        for key, value in config.items():
            values.setdefault(key, {})[value] = None
    experiment = text(6, name) + double(3, created_at)
    experiment += b"".join(message(4, _column(key, list(found))) for key, found in values.items())
    experiment += b"".join(message(5, message(1, text(2, tag))) for tag in metrics)
    return plugin_event("_hparams_/experiment", _PLUGIN, message(2, experiment), created_at)


def start_event(config: Mapping[str, Scalar], group: str, at: float) -> bytes:
    """Return the record that gives a candidate's configuration."""
    entries = (text(1, key) + message(2, _value(value)) for key, value in config.items())
    start = b"".join(message(1, entry) for entry in entries) + text(4, group) + double(5, at)
    return plugin_event("_hparams_/session_start_info", _PLUGIN, message(3, start), at)


def end_event(status: int, at: float) -> bytes:
    """Return the record that says how a candidate ended."""
    end = whole(1, status) + double(2, at)
    return plugin_event("_hparams_/session_end_info", _PLUGIN, message(4, end), at)


def _column(key: str, values: Sequence[Scalar]) -> bytes:
    kinds = {type(value) for value in values}
    kind = _FLOAT if kinds == {float} else _BOOL if kinds == {bool} else _STRING
    column = text(1, key) + whole(4, kind)
    if kind == _STRING:
        column += message(5, b"".join(message(1, _value(str(value))) for value in values))
    return column


def _value(value: Scalar) -> bytes:
    """Return a google.protobuf.Value."""
    if isinstance(value, bool):
        return whole(4, value)
    return double(2, value) if isinstance(value, float) else text(3, value)
