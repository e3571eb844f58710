"""Folders of save_pretrained: model.safetensors, or shards with an index that names them.

Nothing in such a folder is run or followed out of it: config.json is read as data, and an index
may name plain files of its own folder only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from mmdb.data.exported import OWN_FILE
from mmdb.errors import FileDamaged, FileNotRead, UnsafeFile
from mmdb.store.files.atomic import replacing
from mmdb.store.files.lazy import LazyTensors, Spec, batches
from mmdb.store.files.safetensors_format import (
    OWN_KEY,
    open_safetensors,
    place_tied,
    write_safetensors,
)
from mmdb.store.files.torch_format import open_torch

CONFIG, PREPROCESSOR = "config.json", "preprocessor_config.json"
TOKENIZER = "tokenizer.json"
INDEX = ".index.json"
#: Bytes that a shard holds at most, unless a single tensor is larger.
SHARD_BYTES = 5_000_000_000
#: Largest JSON file that is read, in bytes.
MAX_JSON = 100_000_000
#: Largest file that says how a network is built, or what its pictures become; with the names of
#: 21,000 classes it has 2 MB.
MAX_CONFIG = 10_000_000
#: Objects and lists of a JSON file that lie within each other.
MOST_NESTED = 100

_PATTERNS = ("*.safetensors", "*.bin")


# -- reading ------------------------------------------------------------------


def open_huggingface(folder: Path) -> LazyTensors:
    """Return the tensors of a folder.

    `metadata` holds its config.json under 'config', and the text of its tokenizer.json, where there
    is one, under 'tokenizer'.

    safetensors files are taken before .bin files. Tied weights that the folder leaves out stay
    out: its config says how they are tied, and code would have to act on it.

    Raises:
        FileNotRead, FileDamaged, UnsafeFile, UnsupportedContent
    """
    config, preprocessor, own = (
        read_json(inside(folder, name), most) if (folder / name).is_file() else {}
        for name, most in ((CONFIG, MAX_CONFIG), (PREPROCESSOR, MAX_CONFIG), (OWN_FILE, MAX_JSON))
    )
    first = _weights(folder)
    is_index = first.name.endswith(INDEX)
    found = _open_index(folder, first, own) if is_index else _open(folder, first.name)
    metadata = found.metadata | {"config": config, "preprocessor": preprocessor}
    metadata[OWN_KEY] = own or metadata.get(OWN_KEY, {})
    if (folder / TOKENIZER).is_file():
        read_json(folder / TOKENIZER)
        metadata["tokenizer"] = (folder / TOKENIZER).read_text(encoding="utf-8")
    notes = list(found.notes)
    if config.get("tie_word_embeddings") is True and not any(
        name.endswith("lm_head.weight") for name in found
    ):
        notes.append("config.json ties the output layer to the embedding; the folder holds it once")
    return LazyTensors(
        found.specs,
        found.read_many,
        tied=found.tied,
        metadata=metadata,
        notes=notes,
        is_mapped=found.is_mapped,
    )


def _weights(folder: Path) -> Path:
    """Return the one index or weights file of a folder."""
    try:
        names = sorted(entry.name for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise FileNotRead(f"{folder} cannot be read: {error.strerror}.") from error
    for pattern in _PATTERNS:
        suffix = pattern[1:]
        for ending in (suffix + INDEX, suffix):
            found = [name for name in names if name.endswith(ending) and _is_weights(name)]
            if len(found) == 1:
                return folder / found[0]
            if found:
                raise FileNotRead(
                    f"{folder} holds {len(found)} sets of weights: {', '.join(found[:5])}.",
                    hint="Import the file that you mean, not its folder; shards need their "
                    "*.index.json.",
                )
    raise FileNotRead(
        f"{folder} holds no *.safetensors and no *.bin file.",
        hint="Point to the folder that save_pretrained wrote.",
    )


def _is_weights(name: str) -> bool:
    return name not in ("training_args.bin", "optimizer.bin", "scheduler.bin")


def _open_index(folder: Path, index: Path, own: Mapping[str, Any]) -> LazyTensors:
    places = read_json(inside(folder, index.name)).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(v, str) for v in places.values()):
        raise FileDamaged(f"{index} has no weight_map of names to files.")
    shards = {name: _open(folder, name) for name in dict.fromkeys(places.values())}
    for name, shard in shards.items():
        meant = {path for path, place in places.items() if place == name}
        _check_shard(index, name, meant, set(shard))
    specs = {path: shards[place].specs[path] for path, place in places.items()}
    tied = {path: source for shard in shards.values() for path, source in shard.tied.items()}
    more, order = _ties(folder, own, specs)
    notes = [note for shard in shards.values() for note in shard.notes]

    def load(paths: Sequence[str]) -> dict[str, torch.Tensor]:
        return {path: shards[places[path]].read_many([path])[path] for path in paths}

    return LazyTensors(
        place_tied(specs, more, order),
        load,
        tied=tied | more,
        notes=[*notes, f"read {len(shards)} shards"],
        is_mapped=all(shard.is_mapped for shard in shards.values()),
    )


def _ties(
    folder: Path, own: Mapping[str, Any], specs: Mapping[str, Spec]
) -> tuple[dict[str, str], dict[str, int]]:
    """Return what mmdb wrote into mmdb.json of ties: path to path, and the tied paths' places."""
    tied, order = own.get("tied", {}), own.get("order", {})
    if (
        not isinstance(tied, dict)
        or not isinstance(order, dict)
        or any(path in specs or source not in specs for path, source in tied.items())
        or any(type(place) is not int for place in order.values())
    ):
        raise FileDamaged(f"{folder / OWN_FILE} does not fit the weights beside it.")
    return tied, order


def _check_shard(index: Path, name: str, meant: set[str], there: set[str]) -> None:
    for paths, what in ((meant - there, "lacks"), (there - meant, "also holds")):
        if paths:
            shown = ", ".join(map(repr, sorted(paths)[:3])) + (", …" if len(paths) > 3 else "")
            raise FileDamaged(
                f"{index} and its shard {name} disagree: the shard {what} {shown}.",
                hint="The shards are of two different models; fetch the folder again.",
            )


def _open(folder: Path, name: str) -> LazyTensors:
    path = inside(folder, name)
    return open_safetensors(path) if name.endswith(".safetensors") else open_torch(path)


def inside(folder: Path, name: str) -> Path:
    """Return the path of a plain file of the folder, wherever an index took its name from."""
    path = folder / name
    if name in ("", ".", "..") or "/" in name or "\\" in name or "\0" in name:
        raise UnsafeFile(f"The index of {folder} names {name!r}, which is no file of that folder.")
    if not path.is_file():
        raise FileNotRead(f"{folder} lacks its file {name}.", hint="Fetch the missing file.")
    target, home = path.resolve(), folder.resolve()
    if target.parent not in (home, _blobs(home)):
        raise UnsafeFile(f"{path} is a link to {target}, outside of its folder.")
    return path


def _blobs(folder: Path) -> Path | None:
    """Return where a download cache keeps the files that the links in `folder` lead to."""
    return folder.parent.parent / "blobs" if folder.parent.name == "snapshots" else None


def read_json(path: Path, most: int = MAX_JSON) -> dict[str, Any]:
    """Return the object that a JSON file of at most so many bytes holds.

    Raises:
        FileNotRead, FileDamaged
    """
    try:
        if path.stat().st_size > most:
            raise FileDamaged(f"{path} is larger than {most:,} bytes.")
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise FileNotRead(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise FileDamaged(f"{path} is not JSON: {error}.") from error
    if not isinstance(found, dict):
        raise FileDamaged(f"{path} does not hold an object.")
    level: list[Any] = [found]
    for _ in range(MOST_NESTED):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
    if level:
        raise FileDamaged(f"{path} is nested more than {MOST_NESTED} deep.")
    return found


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write an object as JSON that people can read, in place of what is there.

    Raises:
        FileNotWritten
    """
    with replacing(path, overwrite=True) as file:
        file.write(json.dumps(value, ensure_ascii=False, indent=2).encode() + b"\n")


# -- writing ------------------------------------------------------------------


def write_huggingface(
    folder: Path,
    tensors: LazyTensors,
    config: Mapping[str, Any],
    own: Mapping[str, Any],
    tokenizer: str | None = None,
    *,
    max_shard_bytes: int = SHARD_BYTES,
) -> int:
    """Write weights, config.json and mmdb.json into an empty folder; return the weights' bytes.

    And the text of a tokenizer.json, where there is one.

    A tensor larger than `max_shard_bytes` is a shard by itself.

    Raises:
        UnsupportedContent, FileNotWritten
    """
    names = [path for path in tensors if path not in tensors.tied]
    shards = list(batches(tensors.specs, names, max_shard_bytes))
    if len(shards) <= 1:
        with replacing(folder / "model.safetensors") as file:
            written = write_safetensors(file, tensors)
    else:
        written = _write_shards(folder, tensors, shards)
        order = {path: place for place, path in enumerate(tensors) if path in tensors.tied}
        own = {**own, "tied": tensors.tied, "order": order}
    write_json(folder / CONFIG, config)
    write_json(folder / OWN_FILE, own)
    if tokenizer is not None:
        with replacing(folder / TOKENIZER) as file:
            file.write(tokenizer.encode())
    return written


def _write_shards(folder: Path, tensors: LazyTensors, shards: Sequence[Sequence[str]]) -> int:
    written = 0
    places: dict[str, str] = {}
    for number, paths in enumerate(shards, start=1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        with replacing(folder / name) as file:
            written += write_safetensors(file, tensors, paths=paths)
        places |= dict.fromkeys(paths, name)
    total = sum(tensors.specs[path].bytes for path in places)
    index = {"metadata": {"total_size": total}, "weight_map": places}
    write_json(folder / f"model.safetensors{INDEX}", index)
    return written
