"""Model files of other programs: which format a path is of, and writing one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from mmdb.data.exported import OWN_FILE
from mmdb.errors import FileDamaged, FileExists, FileNotRead, InvalidOption
from mmdb.store.files.atomic import new_folder, replacing, staging, sync_folder, writing
from mmdb.store.files.huggingface_format import (
    CONFIG,
    INDEX,
    SHARD_BYTES,
    TOKENIZER,
    open_huggingface,
    write_huggingface,
)
from mmdb.store.files.lazy import LazyTensors
from mmdb.store.files.safetensors_format import open_safetensors, write_safetensors
from mmdb.store.files.torch_format import open_torch, write_torch

Format = Literal["safetensors", "torch", "huggingface"]
FORMATS: tuple[Format, ...] = get_args(Format)

_SUFFIXES: dict[str, Format] = {
    ".safetensors": "safetensors",
    ".pt": "torch",
    ".pth": "torch",
    ".bin": "torch",
    ".ckpt": "torch",
}


def open_tensors(
    source: str | os.PathLike[str],
    *,
    format: Format | Literal["auto"] = "auto",
    key: str | None = None,
    skip: bool = False,
) -> LazyTensors:
    """Return the tensors of a file or folder; the file is checked, its tensors are read later.

    Args:
        format: told by the first bytes if "auto"; a folder is one of save_pretrained.
        key, skip: of torch files, see `open_torch`.
    Raises:
        FileNotRead, FileDamaged, UnsafeFile, UnsupportedContent, InvalidOption
    """
    path = Path(source)
    kind = format_of_source(path) if format == "auto" else check_format(format)
    if kind == "huggingface":
        found = open_huggingface(path if path.is_dir() else path.parent)
    elif path.is_dir():
        raise FileNotRead(f"{path} is a folder, not a {kind} file.", hint="Name the file in it.")
    else:
        found = open_torch(path, key=key, skip=skip) if kind == "torch" else open_safetensors(path)
    if not found:
        raise FileDamaged(f"{path} holds no tensors.", hint="Check that it is the file you mean.")
    for name in found:
        if not name or "\0" in name or not _is_text(name):
            raise FileDamaged(
                f"{path} names a tensor {name!r}.",
                hint="A name is valid Unicode, not empty and without NUL.",
            )
    return found


def check_format(format: str) -> Format:
    """Return `format` if it is one.

    Raises:
        InvalidOption
    """
    for known in FORMATS:
        if format == known:
            return known
    raise InvalidOption(
        f"There is no format {format!r}.", hint=f"Formats are {', '.join(FORMATS)} and auto."
    )


def format_of_source(path: Path) -> Format:
    """Return the format that a file's first bytes tell; a folder is one of save_pretrained.

    Raises:
        FileNotRead
    """
    if path.is_dir() or (path.is_file() and path.name.endswith(INDEX)):
        return "huggingface"
    if not path.is_file():
        raise FileNotRead(f"There is no file {path}.")
    try:
        with path.open("rb") as file:
            head = file.read(9)
    except OSError as error:
        raise FileNotRead(f"{path} cannot be read: {error.strerror}.") from error
    if head[:2] == b"PK" or (head[:1] == b"\x80" and head[8:9] != b"{"):
        return "torch"
    if head[8:9] == b"{":
        return "safetensors"
    return _SUFFIXES.get(path.suffix, "safetensors")


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


# -- writing ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Written:
    """What was written."""

    target: Path
    format: Format
    bytes: int


def format_of_target(target: Path) -> Format:
    """Return the format that a target's name asks for: a file by its suffix, a folder by none.

    Raises:
        InvalidOption
    """
    if target.is_dir() or not target.suffix:
        return "huggingface"
    if target.suffix not in _SUFFIXES:
        raise InvalidOption(
            f"{target.name!r} does not say which format to write.",
            hint=f"End it in {', '.join(_SUFFIXES)}, or pass format (--format).",
        )
    return _SUFFIXES[target.suffix]


def write_tensors(
    target: str | os.PathLike[str],
    tensors: LazyTensors,
    *,
    own: Mapping[str, Any] | None = None,
    config: Mapping[str, Any] | None = None,
    tokenizer: str | None = None,
    format: Format | Literal["auto"] = "auto",
    overwrite: bool = False,
    max_shard_bytes: int = SHARD_BYTES,
) -> Written:
    """Write tensors to a file or folder, which is there whole or not at all.

    Args:
        own: what mmdb knows of the model; a torch file has no place for it.
        config: of a folder's config.json.
        tokenizer: the text of its tokenizer.json.
        overwrite: take the place of a file; in a folder, of its weights, index and JSON.
    Raises:
        FileExists, FileNotWritten, UnsupportedContent, InvalidOption
    """
    path = Path(target)
    kind = format_of_target(path) if format == "auto" else check_format(format)
    if kind == "huggingface":
        if max_shard_bytes < 1:
            raise InvalidOption(
                "max_shard_bytes must be at least 1.", hint="It is 5 GB if left out."
            )
        about = (config or {}, own or {}, tokenizer)
        count = _write_folder(path, tensors, about, overwrite, max_shard_bytes)
    elif kind == "torch":
        with replacing(path, overwrite=overwrite) as file:
            write_torch(file, tensors.all())
            count = file.tell()
    else:
        with replacing(path, overwrite=overwrite) as file:
            count = write_safetensors(file, tensors, own=own)
    return Written(path, kind, count)


def _write_folder(
    target: Path,
    tensors: LazyTensors,
    about: tuple[Mapping[str, Any], Mapping[str, Any], str | None],
    overwrite: bool,
    shard: int,
) -> int:
    if not target.is_dir() or not overwrite:
        if target.exists() and not target.is_dir():
            raise FileExists(f"{target} is a file.", hint="Choose another target.")
        with new_folder(target) as folder:
            return write_huggingface(folder, tensors, *about, max_shard_bytes=shard)
    with staging(target) as folder:
        count = write_huggingface(folder, tensors, *about, max_shard_bytes=shard)
        with writing(target):
            _move_into(folder, target)
    return count


def _move_into(folder: Path, target: Path) -> None:
    """Put new weights in the place of a folder's old ones.

    Indexes go first and come last: a reader never takes old and new shards for one model.
    """
    old = [path for path in target.iterdir() if _is_written_by_us(path.name)]
    for path in sorted(old, key=lambda p: not p.name.endswith(INDEX)):
        path.unlink()
    for path in sorted(
        folder.iterdir(),
        key=lambda p: (p.name.endswith(INDEX), p.name in (CONFIG, OWN_FILE, TOKENIZER)),
    ):
        os.replace(path, target / path.name)
    sync_folder(target)


def _is_written_by_us(name: str) -> bool:
    is_shard = name.startswith("model") and name.endswith(".safetensors")
    return name in (CONFIG, OWN_FILE) or name == f"model.safetensors{INDEX}" or is_shard
