"""TensorBoard's event files: records of protocol buffers, and the table that HParams reads."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def _table() -> tuple[int, ...]:
    entries = []
    for entry in range(256):
        for _ in range(8):
            entry = entry >> 1 ^ (0x82F63B78 if entry & 1 else 0)
        entries.append(entry)
    return tuple(entries)


_CRC = _table()


def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of some bytes.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def record(data: bytes) -> bytes:
    """Return one record of an event file."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


# -- protocol buffers ---------------------------------------------------------


def varint(value: int) -> bytes:
    """Return a whole number from 0 in as many bytes as it needs.

    >>> varint(1), varint(300)
    (b'\\x01', b'\\xac\\x02')
    """
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def whole(field: int, value: int) -> bytes:
    """Return a field of type int, bool or enum."""
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """Return a field of type double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def single(field: int, value: float) -> bytes:
    """Return a field of type float."""
    return varint(field << 3 | _FIXED32) + struct.pack("<f", value)


def message(field: int, data: bytes) -> bytes:
    """Return a field that is a message, or bytes."""
    return varint(field << 3 | _BYTES) + varint(len(data)) + data


def text(field: int, value: str) -> bytes:
    """Return a field of type string."""
    return message(field, value.encode())


# -- events -------------------------------------------------------------------


def version_event(wall_time: float) -> bytes:
    """Return the record that every event file begins with."""
    return record(double(1, wall_time) + text(3, "brain.Event:2"))


def scalar_event(tag: str, value: float, step: int, wall_time: float) -> bytes:
    """Return the record of one number; times are seconds since 1970."""
    summary = message(1, text(1, tag) + single(2, value))
    return record(double(1, wall_time) + whole(2, step) + message(5, summary))


def plugin_event(tag: str, plugin: str, content: bytes, wall_time: float) -> bytes:
    """Return the record of what a plugin keeps for itself."""
    metadata = message(1, text(1, plugin) + message(2, content))
    summary = message(1, text(1, tag) + message(9, metadata))
    return record(double(1, wall_time) + message(5, summary))


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
