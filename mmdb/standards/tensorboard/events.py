"""TensorBoard's event files: protocol buffers in records with checksums, written without either.

Record: https://github.com/tensorflow/tensorboard, `tensorboard/summary/writer/record_writer.py`;
messages: `tensorboard/compat/proto/event.proto` and `summary.proto` there. Field numbers are those
of these files.
"""

from __future__ import annotations

import struct

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
