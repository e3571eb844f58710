"""Files of torch.save: a zip archive of a pickle and one record for each storage.

Only tensors and plain containers are unpickled (torch's `weights_only`); a file that wants more
is refused. Storages are mapped into memory, not read, so that a file larger than memory opens.
"""

from __future__ import annotations

import pickle
import re
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from mmdb.errors import FileDamaged, FileNotRead, UnsafeFile, UnsupportedContent, stops_the_caller
from mmdb.store.files.lazy import LazyTensors, Spec, view_key
from mmdb.store.tensors.tensor_bytes import raw_bytes

#: Most records that an archive may have; each is at least 128 bytes of memory to list.
MAX_RECORDS = 1_000_000
#: A file's tensors may be this many times larger than the file (views may repeat its elements) ...
MAX_EXPANSION = 8
#: ... plus this many bytes.
EXPANSION_BYTES = 16 << 20

_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")
_SUB_BYTE = re.compile(r"torch\.u?int[1-7]")
_CODE = re.compile(r"GLOBAL|Unsupported (?:class|operand)|TorchScript")


def open_torch(path: Path, *, key: str | None = None, skip: bool = False) -> LazyTensors:
    """Return the tensors of a state dict that torch.save wrote.

    The state dict is the file's object, or the only one among its values: checkpoints hold it
    under 'state_dict', 'model' or the like. `notes` says which one was taken.

    Args:
        key: the entry of the file that is the state dict.
        skip: leave out what is not a tensor.
    Raises:
        FileNotRead, FileDamaged, UnsafeFile, UnsupportedContent
    """
    found = _load(path)
    notes = []
    if key is None:
        key = _only_state_dict(path, found)
        if key is not None:
            notes.append(f"took the state dict under {key!r}")
    if key is not None:
        if not isinstance(found, Mapping) or not isinstance(found.get(key), Mapping):
            raise UnsupportedContent(f"{path} has no state dict under {key!r}.", hint=_keys(found))
        found = found[key]
    if not isinstance(found, Mapping):
        raise UnsupportedContent(
            f"{path} holds a {type(found).__name__}, not a state dict.",
            hint="Save module.state_dict() with torch.save and import that.",
        )
    wrong = [name for name, value in found.items() if not _is_entry(name, value)]
    if wrong and not skip:
        shown = ", ".join(f"{n!r} ({type(found[n]).__name__})" for n in wrong[:5])
        raise UnsupportedContent(
            f"{path} holds entries that are not tensors: {shown}{', …' if len(wrong) > 5 else ''}.",
            hint="Pass skip=True (--skip) to leave them out, or key=... (--key) to go one level "
            "down.",
        )
    if wrong:
        notes.append(f"left out {len(wrong)} entries that are not tensors")
    tensors = {name: value.detach() for name, value in found.items() if name not in set(wrong)}
    _check_tensors(path, tensors)
    return LazyTensors.holding(tensors, notes=notes, is_mapped=True)


def write_torch(file: BinaryIO, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write a state dict for `torch.load(weights_only=True)`; it must fit into memory.

    Tensors that share memory share it in the file; no other memory of theirs is written.

    Raises:
        UnsupportedContent: torch.save has no storage for a dtype.
        OSError
    """
    for name, tensor in tensors.items():
        if _SUB_BYTE.fullmatch(str(tensor.dtype)):
            raise UnsupportedContent(
                f"torch.save cannot write {name!r}, which is of dtype {tensor.dtype}.",
                hint="Keep such a tensor as its bytes: tensor.view(torch.uint8).",
            )
    try:
        torch.save(OrderedDict(_compact(dict(tensors))), file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch trips over the file that is cut off
            raise error.__context__ from None
        raise


# -- reading ------------------------------------------------------------------


def _load(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            head = file.read(4)
    except OSError as error:
        raise FileNotRead(f"{path} cannot be read: {error.strerror}.") from error
    is_archive = head == b"PK\x03\x04"
    if is_archive:
        _check_archive(path)
    elif head[:1] != b"\x80":
        raise FileDamaged(f"{path} is not a file of torch.save.")
    is_mapped = is_archive and path.suffix != ".safetensors"  # which torch takes for another format
    try:
        with warnings.catch_warnings(), path.open("rb") as file:
            warnings.simplefilter("ignore")
            return torch.load(
                path if is_mapped else file, map_location="cpu", weights_only=True, mmap=is_mapped
            )
    except (pickle.UnpicklingError, RuntimeError) as error:
        if _CODE.search(str(error)):
            raise UnsafeFile(_refusal(path, str(error))) from error
        raise FileDamaged(f"{path} is damaged: {_first_line(error)}.") from error
    except OSError as error:
        raise FileNotRead(f"{path} cannot be read: {error.strerror}.") from error
    except Exception as error:  # a pickle of ill will can raise anything
        if stops_the_caller(error):
            raise
        raise FileDamaged(f"{path} is damaged: {_first_line(error)}.") from error


def _check_archive(path: Path) -> None:
    """Refuse archives of programs, and those that unpack to more than they are.

    torch.save stores its records as they are; TorchScript packs its code.
    """
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, OSError) as error:
        raise FileDamaged(f"{path} is cut short or damaged: {_first_line(error)}.") from error
    names = {record.filename for record in records}
    if any(name.endswith("/constants.pkl") for name in names):  # by which torch tells it, too
        raise UnsafeFile(_refusal(path, "TorchScript"))
    packed = any(record.compress_type != zipfile.ZIP_STORED for record in records)
    if packed or sum(record.file_size for record in records) > size:
        raise FileDamaged(f"{path} unpacks to more than it holds, which torch.save never writes.")
    if len(names) < len(records) or len(records) > MAX_RECORDS:
        raise FileDamaged(f"{path} holds {len(records):,} records of {len(names):,} names.")


def _refusal(path: Path, message: str) -> str:
    if "TorchScript" in message:
        return f"{path} is a TorchScript archive, which is a program."
    names = _GLOBAL.findall(message)
    return f"{path} asks to run code" + (f": {names[0]}." if names else ".")


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].rstrip(".")[:200]


def _is_entry(name: object, value: object) -> bool:
    return isinstance(name, str) and isinstance(value, torch.Tensor)


def _is_state_dict(value: object) -> bool:
    return isinstance(value, Mapping) and bool(value) and all(map(_is_entry, value, value.values()))


def _only_state_dict(path: Path, found: object) -> str | None:
    """Return the key under which the file's one state dict lies, or None if it is the file's."""
    if not isinstance(found, Mapping) or any(map(_is_entry, found, found.values())):
        return None
    keys = [key for key, value in found.items() if isinstance(key, str) and _is_state_dict(value)]
    if len(keys) > 1:
        raise UnsupportedContent(
            f"{path} holds {len(keys)} state dicts: {', '.join(map(repr, keys[:5]))}.",
            hint=f"Say which with key={keys[0]!r} (--key {keys[0]}).",
        )
    return keys[0] if keys else None


def _keys(found: object) -> str:
    if not isinstance(found, Mapping):
        return f"The file holds a {type(found).__name__}."
    return f"Its keys are {', '.join(map(repr, list(found)[:10]))}."


def _check_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            kind = "quantized" if tensor.is_quantized else str(tensor.layout)
            raise UnsupportedContent(
                f"{name!r} in {path} is {'without data' if tensor.is_meta else kind}.",
                hint="Make it a dense tensor before saving it: to_dense() or dequantize().",
            )
    views = {view_key(tensor): Spec.of(tensor).bytes for tensor in tensors.values()}
    total, size = sum(views.values()), path.stat().st_size
    if total > MAX_EXPANSION * size + EXPANSION_BYTES:
        raise FileDamaged(
            f"The tensors of {path} would be {total:,} bytes, those of the file are {size:,}.",
            hint="Its tensors repeat their elements (strides of 0); save them contiguous().",
        )


# -- writing ------------------------------------------------------------------


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the addresses of the first byte that a tensor touches and of the one after its last.

    An empty tensor touches none.
    """
    if not tensor.numel():
        return 0, 0
    reach = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return tensor.data_ptr(), tensor.data_ptr() + reach * tensor.element_size()


def _compact(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the same tensors, those that overlap in a storage of their own, the rest contiguous.

    torch.save writes a tensor's whole storage, which may be that of a whole model.
    """
    done: dict[str, torch.Tensor] = {}
    for group in _overlapping(tensors):
        done |= _together({path: tensors[path] for path in group})
    return {path: done[path] for path in tensors}


def _overlapping(tensors: Mapping[str, torch.Tensor]) -> Iterator[list[str]]:
    """Yield the paths of tensors whose bytes touch the same addresses; most stand alone."""
    key: Callable[[str], tuple[int, int]] = lambda path: _span(tensors[path])  # noqa: E731
    group: list[str] = []
    end = 0
    for path in sorted(tensors, key=key):
        first, last = key(path)
        if group and first >= end:
            yield group
            group = []
        group.append(path)
        end = max(last, end)
    if group:
        yield group


def _together(group: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    views = {view_key(tensor): tensor for tensor in group.values()}
    if len(views) == 1:
        (only,) = views.values()
        return dict.fromkeys(group, _alone(only))
    word = max(tensor.element_size() for tensor in group.values())
    first = min(_span(tensor)[0] for tensor in group.values())
    end = max(_span(tensor)[1] for tensor in group.values())
    source = next(iter(group.values())).untyped_storage()
    low = (first - source.data_ptr()) // word * word
    high = end - source.data_ptr()
    memory = torch.empty(0, dtype=torch.uint8).set_(source, low, (high - low,), (1,)).clone()
    return {path: _moved(tensor, memory, low) for path, tensor in group.items()}


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous tensor that has its memory to itself.

    A copy is made by bytes: torch cannot copy every dtype that it has.
    """
    data = raw_bytes(tensor)
    is_conjugate = tensor.is_conj() or tensor.is_neg()
    if tensor.is_contiguous() and not is_conjugate and tensor.device.type == "cpu":
        if tensor.untyped_storage().nbytes() == len(data):
            return tensor.detach()
    copy = torch.empty(len(data), dtype=torch.uint8)
    copy.numpy()[:] = data
    return copy.view(tensor.dtype).reshape(tensor.shape)


def _moved(tensor: torch.Tensor, memory: torch.Tensor, low: int) -> torch.Tensor:
    """Return the view of `memory` that `tensor` is of its storage from byte `low` on."""
    offset = (tensor.storage_offset() * tensor.element_size() - low) // tensor.element_size()
    empty = torch.empty(0, dtype=tensor.dtype)
    return empty.set_(memory.untyped_storage(), offset, tensor.shape, tensor.stride())
