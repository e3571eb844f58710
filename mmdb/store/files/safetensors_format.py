"""safetensors files: a JSON header of names, dtypes, shapes and offsets, then the bytes.

The library checks the header. Tensors are read here, one by one with plain reads: a file that is
cut short while it is read is an error then, where a memory map would end the process. Writing
streams too; the library's own writer wants all tensors in memory.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
import torch
from blake3 import blake3
from safetensors import SafetensorError, safe_open

from mmdb.errors import FileDamaged, FileNotRead, StateCorrupt, UnsupportedContent
from mmdb.store.files.lazy import LazyTensors, Spec
from mmdb.store.tensors.tensor_bytes import raw_bytes

#: Longest header in bytes that the format allows.
MAX_HEADER = 100_000_000
METADATA = "__metadata__"
#: Key of the metadata under which mmdb keeps what it knows of a model, as JSON.
OWN_KEY = "mmdb"

_DTYPES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "U16": torch.uint16,
    "I16": torch.int16,
    "U32": torch.uint32,
    "I32": torch.int32,
    "U64": torch.uint64,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F4": torch.float4_e2m1fn_x2,  # whose elements are pairs of the format's
}
#: The format's names of torch's dtypes.
NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_PAIRS = "F4"


# -- reading ------------------------------------------------------------------


def open_safetensors(path: Path) -> LazyTensors:
    """Return the tensors of a file, which is checked but for the values of its tensors.

    Tied names are those that the metadata gives, as `safetensors.torch.save_model` writes them.

    Raises:
        FileNotRead, FileDamaged, UnsupportedContent
    """
    start, header = _read_header(path)
    metadata = header.pop(METADATA, {})
    try:
        with safe_open(path, framework="pt", backend="pread"):  # checks types, offsets, the end
            pass
    except (SafetensorError, OSError) as error:
        raise FileDamaged(f"{path} is not a whole safetensors file: {error}.") from error
    specs = {name: _spec(path, name, entry) for name, entry in header.items()}
    places = {name: start + entry["data_offsets"][0] for name, entry in header.items()}

    def load(names: Sequence[str]) -> dict[str, torch.Tensor]:
        try:
            with path.open("rb") as file:
                return {name: _read(file, path, specs[name], places[name]) for name in names}
        except OSError as error:
            raise FileNotRead(f"{path} cannot be read: {error.strerror}.") from error

    own = _own(path, metadata)
    tied = _tied(own, metadata, specs)
    return LazyTensors(
        place_tied(specs, tied, own.get("order", {})),
        load,
        tied=tied,
        metadata=metadata | {OWN_KEY: own},
    )


def _read_header(path: Path) -> tuple[int, dict[str, Any]]:
    """Return where the tensors start, and the header in the order of the file."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
            if length > MAX_HEADER:
                raise FileDamaged(
                    f"{path} is not a safetensors file: its header would be {length:,} bytes long."
                )
            text = file.read(length)
    except OSError as error:
        raise FileNotRead(f"{path} cannot be read: {error.strerror}.") from error
    try:
        header: Any = json.loads(text, object_pairs_hook=_once)
    except _Twice as error:
        raise FileDamaged(f"{path} holds {error.args[0]!r} twice.") from None
    except (ValueError, RecursionError) as error:
        raise FileDamaged(f"{path} is not a whole safetensors file: {error}.") from error
    if not isinstance(header, dict):
        raise FileDamaged(f"{path} is not a safetensors file: its header is not an object.")
    return 8 + length, dict(header)


class _Twice(Exception):
    """A key of a JSON object comes twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(next(name for name in names if names.count(name) > 1))
    return found


def _spec(path: Path, name: str, entry: Mapping[str, Any]) -> Spec:
    dtype = _DTYPES.get(entry["dtype"])
    shape = tuple(entry["shape"])
    if dtype is None:
        raise UnsupportedContent(
            f"{name!r} in {path} has the type {entry['dtype']}, which torch does not have.",
            hint="Convert it with the program that wrote it.",
        )
    if entry["dtype"] == _PAIRS:
        if not shape or shape[-1] % 2:
            raise UnsupportedContent(
                f"{name!r} in {path} has rows of an odd number of 4-bit elements.",
                hint="Pad its rows to an even length with the program that wrote it.",
            )
        shape = (*shape[:-1], shape[-1] // 2)
    return Spec(dtype, shape)


def _read(file: BinaryIO, path: Path, spec: Spec, place: int) -> torch.Tensor:
    data = torch.empty(spec.bytes, dtype=torch.uint8)
    file.seek(place)
    view = memoryview(data.numpy().data)
    done = 0
    while done < spec.bytes:
        count = file.readinto(view[done:])  # type: ignore[attr-defined]
        if not count:
            raise FileDamaged(f"{path} was cut short while it was read.")
        done += count
    return data.view(spec.dtype).reshape(spec.shape)


def _own(path: Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    """Return what mmdb wrote into a file's metadata."""
    if OWN_KEY not in metadata:
        return {}
    try:
        own: Any = json.loads(metadata[OWN_KEY])
    except (ValueError, RecursionError):
        own = None
    order = own.get("order", {}) if isinstance(own, dict) else None
    if not isinstance(order, dict) or not all(type(n) is int for n in order.values()):
        raise FileDamaged(f"The metadata {OWN_KEY!r} of {path} is not what mmdb writes there.")
    return dict(own)


def _tied(
    own: Mapping[str, Any], metadata: Mapping[str, str], specs: Mapping[str, Spec]
) -> dict[str, str]:
    known = set(own.get("order", {})) if own else set(metadata)
    return {
        name: metadata[name]
        for name in metadata
        if name in known and name not in specs and metadata[name] in specs
    }


def place_tied(
    specs: Mapping[str, Spec], tied: Mapping[str, str], order: Mapping[str, int]
) -> dict[str, Spec]:
    """Return the specs with the tied names at their places, or at the end where none is known.

    >>> a, b = Spec(torch.int8, ()), Spec(torch.bool, ())
    >>> list(place_tied({"a": a, "b": b}, {"c": "b", "d": "a"}, {"c": 1}))
    ['a', 'c', 'b', 'd']
    """
    names = list(specs)
    for name in sorted(tied, key=lambda n: order.get(n, len(specs) + len(tied))):
        names.insert(order.get(name, len(names)), name)
    return {name: specs[tied.get(name, name)] for name in names}


# -- writing ------------------------------------------------------------------


def can_hold(spec: Spec) -> bool:
    """Return whether the format has the dtype; rows of 4-bit pairs need a dimension to lie in."""
    return spec.dtype in NAMES and (NAMES[spec.dtype] != _PAIRS or bool(spec.shape))


def check_writable(tensors: LazyTensors) -> None:
    """Raise where the format cannot hold a tensor.

    Raises:
        UnsupportedContent
    """
    hint = "Export with format 'torch', which holds every dtype."
    wrong = {
        f"{name!r} ({str(spec.dtype).removeprefix('torch.')})"
        for name, spec in tensors.specs.items()
        if not can_hold(spec)
    }
    if wrong:
        shown = ", ".join(sorted(wrong)[:5]) + (", …" if len(wrong) > 5 else "")
        raise UnsupportedContent(f"safetensors has no type for {shown}.", hint=hint)
    taken = [
        n for n in tensors if n == METADATA or (n in ("format", OWN_KEY) and n in tensors.tied)
    ]
    if taken:
        raise UnsupportedContent(f"A safetensors file has its own use of {taken[0]!r}.", hint=hint)


def write_safetensors(
    file: BinaryIO,
    tensors: LazyTensors,
    *,
    paths: Sequence[str] | None = None,
    own: Mapping[str, Any] | None = None,
) -> int:
    """Write tensors, each once, and return the number of bytes.

    Args:
        paths: the tensors to write; all if left out.
        own: what to put into the metadata under OWN_KEY.
    Raises:
        UnsupportedContent
    """
    check_writable(tensors)
    wanted = list(tensors) if paths is None else paths
    names = [path for path in wanted if path not in tensors.tied]
    by_size = sorted(names, key=lambda n: -tensors.specs[n].dtype.itemsize)  # keeps all aligned
    header, end = _header(tensors, names, by_size)
    header[METADATA] = _metadata(tensors, wanted, own)
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER:
        raise UnsupportedContent(
            f"{len(names):,} tensors are too many for one safetensors file.",
            hint="Export a folder with format 'huggingface' and a smaller max_shard_bytes.",
        )
    file.write(struct.pack("<Q", len(text)) + text)
    for _, tensor in tensors.stream(by_size):
        file.write(raw_bytes(tensor).data)
    return 8 + len(text) + end


def _header(
    tensors: LazyTensors, names: Sequence[str], by_size: Sequence[str]
) -> tuple[dict[str, Any], int]:
    """Return the entries in the order of `names`, and the bytes of all tensors."""
    places, end = {}, 0
    for name in by_size:
        places[name] = end
        end += tensors.specs[name].bytes
    header: dict[str, Any] = {}
    for name in names:
        spec, kind = tensors.specs[name], NAMES[tensors.specs[name].dtype]
        shape = [*spec.shape[:-1], spec.shape[-1] * 2] if kind == _PAIRS else list(spec.shape)
        offsets = [places[name], places[name] + spec.bytes]
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": offsets}
    return header, end


def _metadata(
    tensors: LazyTensors, paths: Sequence[str], own: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the metadata: text by text, as the format wants it."""
    there = set(paths)
    order = {
        path: place
        for place, path in enumerate(paths)
        if path in tensors.tied and tensors.tied[path] in there
    }
    metadata = {path: tensors.tied[path] for path in order}
    text = json.dumps({**(own or {}), "order": order}, ensure_ascii=False)
    return metadata | {"format": "pt", OWN_KEY: text}


#: Kinds in the order in which safetensors writes tensors; within a kind, by name.
_ORDER = (
    *("U64", "I64", "F64", "C64", "F32", "U32", "I32", "BF16", "F16", "U16", "I16"),
    *("F8_E5M2FNUZ", "F8_E4M3FNUZ", "F8_E8M0", "F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL"),
)
_RANKS = {torch_dtype: _ORDER.index(n) for torch_dtype, n in NAMES.items() if n in _ORDER}


class StateEncoding:
    """What `safetensors.torch.save` would return, as long as the tensors stay as they are."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
        """Lay out contiguous tensors on the CPU.

        Raises:
            KeyError: safetensors has no name for a dtype.
        """
        names = sorted(tensors, key=lambda name: (_RANKS[tensors[name].dtype], name))
        header: dict[str, object] = {METADATA: metadata}
        end = 0
        for name in names:
            tensor = tensors[name]
            offsets = [end, end := end + tensor.nbytes]
            shape = list(tensor.shape)
            entry = {"dtype": NAMES[tensor.dtype], "shape": shape, "data_offsets": offsets}
            header[name] = entry
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self._head = len(text).to_bytes(8, "little") + text
        self._body = [raw_bytes(tensors[name]).data for name in names]
        self._size = len(self._head) + end

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return b"".join([self._head, *self._body])

    def digest(self) -> bytes:
        """Return the BLAKE3-256 of the bytes."""
        found = blake3(self._head)
        for part in self._body:
            found.update(part)
        return found.digest()


def decode(state: bytes) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors of an encoded state by name, and the header in its metadata.

    Raises:
        StateCorrupt: its bytes are no encoding, whatever their hash.
    """
    size = int.from_bytes(state[:8], "little")
    try:
        header = json.loads(json.loads(state[8 : 8 + size])[METADATA]["mmdb"])
        tensors = safetensors.torch.load(state)
    except (ValueError, LookupError, TypeError, safetensors.SafetensorError) as error:
        raise StateCorrupt(f"A state of {len(state)} bytes is none: {error}") from error
    if not isinstance(header, dict):
        raise StateCorrupt(f"A state of {len(state)} bytes has no header.")
    return tensors, header


def decode_mapped(path: Path) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return what `decode` does of a file's bytes; the tensors are mapped, copied as they change.

    Raises:
        OSError, StateCorrupt
    """
    try:
        with safetensors.safe_open(path, "pt") as opened:
            header = json.loads((opened.metadata() or {})["mmdb"])
            return {name: opened.get_tensor(name) for name in opened.keys()}, header
    except (ValueError, LookupError, safetensors.SafetensorError) as error:
        raise StateCorrupt(f"{path} is no encoded state: {error}") from error
