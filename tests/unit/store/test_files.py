"""Model files of other programs: what is read, what is refused, what is written."""

from __future__ import annotations

import json
import math
import os
import pickle
import random
import re
import struct
import subprocess
import sys
import warnings
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from mmdb.errors import (
    FileDamaged,
    FileError,
    FileExists,
    FileNotRead,
    FileNotWritten,
    InvalidOption,
    UnsafeFile,
    UnsupportedContent,
)
from mmdb.store.files import safetensors_format
from mmdb.store.files.formats import open_tensors, write_tensors
from mmdb.store.files.lazy import LazyTensors
from mmdb.store.tensors.tensor_bytes import DTYPES, raw_bytes

#: Every dtype that safetensors and torch both have.
SAFE = sorted(safetensors_format._DTYPES.values(), key=str)


def random_bits(dtype: torch.dtype, *shape: int, seed: int = 0) -> torch.Tensor:
    """Return a tensor of random bits: NaN payloads, infinities and negative zeros among them."""
    generator = torch.Generator().manual_seed(seed)
    high = 2 if dtype == torch.bool else 256
    size = (math.prod(shape) * dtype.itemsize,)
    data = torch.randint(0, high, size, generator=generator, dtype=torch.uint8)
    return data.view(dtype).reshape(shape)


def example(seed: int = 0) -> dict[str, torch.Tensor]:
    """Return a small state dict, in an order that is not alphabetical."""
    generator = torch.Generator().manual_seed(seed)
    return {
        "stem.weight": torch.randn(4, 3, generator=generator),
        "norm.num_batches_tracked": torch.tensor(7),
        "norm.weight": torch.randn(4, generator=generator).to(torch.bfloat16),
        "blank": torch.empty(0, 5),
        "Kopf/größe 🦒": torch.randn(2, 2, generator=generator, dtype=torch.float64),
    }


def assert_same(found: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor]) -> None:
    """Assert equal paths in equal order, and equal dtypes, shapes and bits."""
    assert list(found) == list(expected)
    for path, tensor in expected.items():
        other = found[path]
        assert (other.dtype, other.shape) == (tensor.dtype, tensor.shape), path
        assert raw_bytes(other).tobytes() == raw_bytes(tensor).tobytes(), path


def holding(tensors: Mapping[str, torch.Tensor]) -> LazyTensors:
    return LazyTensors.holding(tensors)


def safetensors_bytes(header: Any, data: bytes = b"") -> bytes:
    """Return a file with a header that need not be right."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(start: int, stop: int, shape: Sequence[int] = (1,), dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [start, stop]}


# -- what is written comes back -----------------------------------------------


@pytest.mark.parametrize("target", ["m.safetensors", "m.pt", "m.bin", "folder"])
def test_tensors_come_back_bit_for_bit_and_in_order(tmp_path: Path, target: str) -> None:
    written = write_tensors(tmp_path / target, holding(example()))
    found = open_tensors(written.target)
    assert_same(found, example())
    assert_same(found.all(), example())


@pytest.mark.parametrize("dtype", SAFE, ids=str)
def test_every_dtype_of_safetensors_keeps_its_bits(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a": random_bits(dtype, 3, 4), "none": random_bits(dtype, 0, 2)}
    path = tmp_path / "m.safetensors"
    write_tensors(path, holding(tensors))
    assert_same(open_tensors(path), tensors)
    if dtype != torch.float4_e2m1fn_x2:  # whose files the library writes but does not read
        assert_same(safetensors.torch.load_file(path), dict(sorted(tensors.items())))
    library = tmp_path / "library.safetensors"
    safetensors.torch.save_file(tensors, library)
    assert_same(open_tensors(library), tensors)


@pytest.mark.parametrize("dtype", sorted(DTYPES.values(), key=str), ids=str)
def test_torch_files_hold_every_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    tensors = {"a": random_bits(dtype, 3, 4)}
    path = tmp_path / "m.pt"
    if re.search(r"int[1-7]$", str(dtype)):  # torch.save itself has no storage for these
        with pytest.raises(UnsupportedContent, match=f"'a'.*{dtype}"):
            write_tensors(path, holding(tensors))
        return
    write_tensors(path, holding(tensors))
    assert_same(open_tensors(path), tensors)


def test_a_dtype_that_safetensors_lacks_is_named(tmp_path: Path) -> None:
    tensors = {"a": torch.zeros(2), "z.weight": torch.zeros(2, dtype=torch.complex128)}
    with pytest.raises(UnsupportedContent, match=r"'z\.weight' \(complex128\)"):
        write_tensors(tmp_path / "m.safetensors", holding(tensors))
    assert not list(tmp_path.iterdir())


def test_tied_tensors_are_written_once_and_come_back_tied(tmp_path: Path) -> None:
    shared = torch.randn(64, 64)
    tensors = {"embed": shared, "body": torch.randn(2), "head": shared, "tail": torch.zeros(1)}
    for name in ("m.safetensors", "m.pt", "folder"):
        written = write_tensors(tmp_path / name, holding(tensors))
        assert written.bytes < 1.5 * shared.nbytes + 2000
        found = open_tensors(written.target)
        assert_same(found, tensors)
        assert found.tied == {"head": "embed"}
        assert found["embed"].data_ptr() == found["head"].data_ptr()


def test_ties_are_written_and_read_as_the_library_does(tmp_path: Path) -> None:
    module = torch.nn.ModuleDict({"a": torch.nn.Linear(3, 3), "b": torch.nn.Linear(3, 3)})
    module["b"].weight = module["a"].weight
    path = tmp_path / "library.safetensors"
    safetensors.torch.save_model(module, str(path))
    found = open_tensors(path)
    assert found.tied in ({"b.weight": "a.weight"}, {"a.weight": "b.weight"})
    ours = tmp_path / "ours.safetensors"
    write_tensors(ours, holding(module.state_dict(keep_vars=True)))
    safetensors.torch.load_model(module, ours)


def test_torch_files_are_plain_state_dicts_that_keep_views(tmp_path: Path) -> None:
    memory = torch.randn(1000)
    tensors = {"low": memory[:6].view(2, 3).T, "part": memory[4:8], "far": memory[900:904]}
    path = tmp_path / "m.pt"
    write_tensors(path, holding(tensors))
    found = torch.load(path, weights_only=True)
    assert_same(found, tensors)
    found["low"][1, 1] = 5.0  # the fifth element, which `part` begins with
    assert found["part"][0] == 5.0
    assert path.stat().st_size < memory.nbytes  # the rest of the memory is not written


def test_an_old_torch_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.pth"
    torch.save(example(), path, _use_new_zipfile_serialization=False)
    assert_same(open_tensors(path), example())


def test_tensors_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    write_tensors(path, holding(example()))
    found = open_tensors(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size - 1)
    found["Kopf/größe 🦒"]
    with pytest.raises(FileDamaged, match="cut short"):
        found["norm.weight"]


def test_the_format_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    write_tensors(tmp_path / "weights.bin", holding(example()), format="safetensors")
    assert_same(open_tensors(tmp_path / "weights.bin"), example())
    write_tensors(tmp_path / "weights.safetensors", holding(example()), format="torch")
    assert_same(open_tensors(tmp_path / "weights.safetensors"), example())


def test_a_format_that_is_not_known_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="onnx"):
        write_tensors(tmp_path / "m.onnx", holding(example()))
    with pytest.raises(InvalidOption, match="gguf"):
        open_tensors(tmp_path, format="gguf")  # type: ignore[arg-type]


# -- damaged safetensors ------------------------------------------------------

TWICE = (
    b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
    b'"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}}'
)

DAMAGED = {
    "empty": b"",
    "only a length": struct.pack("<Q", 50),
    "a header of a terabyte": struct.pack("<Q", 1 << 40) + b'{"',
    "a header over the limit": struct.pack("<Q", 100_000_001) + b'{"',
    "no JSON": safetensors_bytes(b'{"a":'),
    "deep JSON": safetensors_bytes(b'{"a":' + b"[" * 100_000),
    "no object": safetensors_bytes(b"[1]"),
    "not text": safetensors_bytes(b"\xff\xfe{}"),
    "bytes missing": safetensors_bytes({"a": entry(0, 4)}, b"123"),
    "bytes too many": safetensors_bytes({"a": entry(0, 4)}, b"12345"),
    "overlap": safetensors_bytes({"a": entry(0, 4), "b": entry(2, 6)}, b"123456"),
    "same place": safetensors_bytes({"a": entry(0, 4), "b": entry(0, 4)}, b"1234"),
    "hole": safetensors_bytes({"a": entry(0, 4), "b": entry(6, 10)}, b"1234567890"),
    "out of the file": safetensors_bytes({"a": entry(0, 1 << 50, [1 << 48])}, b"1234"),
    "shape and bytes differ": safetensors_bytes({"a": entry(0, 4, [2])}, b"1234"),
    "negative": safetensors_bytes({"a": entry(0, 4, [-1])}, b"1234"),
    "overflow": safetensors_bytes({"a": entry(0, 4, [1 << 62, 1 << 62])}, b"1234"),
    "twice": safetensors_bytes(TWICE, b"12"),
    "unknown type": safetensors_bytes({"a": entry(0, 4, dtype="F31")}, b"1234"),
    "no tensors": safetensors_bytes({}),
    "metadata is no object": safetensors_bytes({"__metadata__": 3, "a": entry(0, 4)}, b"1234"),
    "own metadata is no JSON": safetensors_bytes(
        {"__metadata__": {"mmdb": "{"}, "a": entry(0, 4)}, b"1234"
    ),
    "own order is not of numbers": safetensors_bytes(
        {"__metadata__": {"mmdb": '{"order": {"b": "x"}}', "b": "a"}, "a": entry(0, 4)}, b"1234"
    ),
    "NUL in a name": safetensors_bytes({"a\0b": entry(0, 4)}, b"1234"),
}


@pytest.mark.parametrize("data", DAMAGED.values(), ids=DAMAGED)
def test_damaged_safetensors_are_refused_by_name(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises(FileDamaged, match=r"bad\.safetensors"):
        open_tensors(path)


def test_every_cut_of_a_file_is_noticed(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.safetensors", tmp_path / "cut.safetensors"
    write_tensors(whole, holding(example()))
    data = whole.read_bytes()
    for length in range(len(data)):
        cut.write_bytes(data[:length])
        with pytest.raises(FileDamaged):
            open_tensors(cut)


def test_a_type_that_torch_lacks_is_named(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors_bytes({"scale": entry(0, 3, [4], "F6_E2M3")}, b"123"))
    with pytest.raises(UnsupportedContent, match=r"'scale'.*F6_E2M3"):
        open_tensors(path)


# -- torch files that are damaged or of ill will ------------------------------


class Evil:
    """Unpickled by a careless reader, it makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.target),)


@pytest.mark.parametrize("new", [True, False], ids=["zip", "legacy"])
def test_a_pickle_that_carries_code_is_refused_and_not_run(tmp_path: Path, new: bool) -> None:
    path, trace = tmp_path / "evil.pt", tmp_path / "trace"
    torch.save({"w": torch.ones(2), "x": Evil(trace)}, path, _use_new_zipfile_serialization=new)
    with pytest.raises(UnsafeFile, match=r"evil\.pt.*mkdir") as caught:
        open_tensors(path)
    assert "state_dict()" in caught.value.hint
    assert not trace.exists()


def test_a_plain_pickle_that_carries_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "evil.bin"
    path.write_bytes(pickle.dumps(Evil(tmp_path / "trace")))
    with pytest.raises(FileError):
        open_tensors(path)
    assert not (tmp_path / "trace").exists()


def test_a_whole_module_is_refused_with_what_to_do(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "module.pt")
    with pytest.raises(UnsafeFile, match="Linear") as caught:
        open_tensors(tmp_path / "module.pt")
    assert "torch.save" in caught.value.hint


def test_cut_and_flipped_torch_files_are_refused(tmp_path: Path) -> None:
    whole, cut = tmp_path / "whole.pt", tmp_path / "cut.pt"
    torch.save(example(), whole)
    data = whole.read_bytes()
    for length in range(0, len(data), 97):
        cut.write_bytes(data[:length])
        with pytest.raises(FileError):
            open_tensors(cut)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("width", [1, 200])
def test_torchscript_is_refused_as_a_program(tmp_path: Path, width: int) -> None:
    path = tmp_path / "script.pt"
    torch.jit.save(torch.jit.script(torch.nn.Linear(width, width)), path)
    with pytest.raises(UnsafeFile, match="TorchScript"):
        open_tensors(path)


def test_an_archive_that_unpacks_to_more_is_refused(tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain.pt", tmp_path / "packed.pt"
    torch.save({"a": torch.zeros(1_000_000)}, plain)
    with (
        zipfile.ZipFile(plain) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as target,
    ):
        for record in source.infolist():
            target.writestr(record.filename, source.read(record))
    with pytest.raises(FileDamaged, match=r"packed\.pt unpacks to more"):
        open_tensors(packed)


def test_a_small_file_of_huge_tensors_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "wide.pt"
    torch.save({"a": torch.zeros(1).expand(1 << 20, 1 << 20)}, path)
    with pytest.raises(FileDamaged, match="would be"):
        open_tensors(path)
    torch.save({"a": torch.zeros(1).expand(100, 100)}, path)
    assert_same(open_tensors(path), {"a": torch.zeros(100, 100)})


@pytest.mark.parametrize("kind", ["sparse", "quantized", "meta"])
def test_tensors_without_plain_bytes_are_named(tmp_path: Path, kind: str) -> None:
    tensor: Callable[[], torch.Tensor] = {
        "sparse": lambda: torch.eye(3).to_sparse(),
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        "meta": lambda: torch.empty(3, device="meta"),
    }[kind]
    with warnings.catch_warnings(action="ignore"):  # torch says once that quantizing is old
        torch.save({"odd": tensor()}, tmp_path / "m.pt")
    with pytest.raises(FileError, match=r"'odd'|m\.pt"):
        open_tensors(tmp_path / "m.pt")


@pytest.mark.parametrize("name", ["m.safetensors", "m.pt", "legacy.pt"])
def test_flipped_bytes_are_read_or_refused_but_never_crash(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "legacy.pt":
        torch.save(example(), path, _use_new_zipfile_serialization=False)
    else:
        write_tensors(path, holding(example()))
    data, chance = path.read_bytes(), random.Random(0)
    for _ in range(300):
        flipped = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            flipped[chance.randrange(len(data))] = chance.randrange(256)
        path.write_bytes(flipped)
        with suppress(FileError):
            open_tensors(path).all()


# -- which entry of a torch file ----------------------------------------------


def test_the_one_state_dict_of_a_checkpoint_is_found_and_said(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    optimizer = {"state": {0: {"step": torch.tensor(1)}}, "param_groups": [{"lr": 0.1}]}
    torch.save({"epoch": 3, "state_dict": example(), "optimizer": optimizer}, path)
    found = open_tensors(path)
    assert_same(found, example())
    assert found.notes == ("took the state dict under 'state_dict'",)


def test_of_two_state_dicts_one_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save({"model": example(0), "ema": example(1)}, path)
    with pytest.raises(UnsupportedContent, match="2 state dicts: 'model', 'ema'") as caught:
        open_tensors(path)
    assert "--key" in caught.value.hint
    assert_same(open_tensors(path, key="ema"), example(1))
    with pytest.raises(UnsupportedContent, match="'teacher'"):
        open_tensors(path, key="teacher")


def test_entries_that_are_not_tensors_are_named_or_left_out(tmp_path: Path) -> None:
    path = tmp_path / "mixed.pt"
    torch.save(example() | {"step": 3, "name": "x"}, path)
    with pytest.raises(UnsupportedContent, match=r"'step' \(int\), 'name' \(str\)"):
        open_tensors(path)
    found = open_tensors(path, skip=True)
    assert_same(found, example())
    assert found.notes == ("left out 2 entries that are not tensors",)


@pytest.mark.parametrize("value", [[torch.ones(1)], torch.ones(1), {}, {1: torch.ones(1)}])
def test_what_is_no_state_dict_is_refused(tmp_path: Path, value: object) -> None:
    torch.save(value, tmp_path / "m.pt")
    with pytest.raises(FileError, match=r"m\.pt"):
        open_tensors(tmp_path / "m.pt")


# -- folders ------------------------------------------------------------------


def shards(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.safetensors"))


def test_a_folder_is_written_in_shards_of_bounded_size(tmp_path: Path) -> None:
    tensors = {f"layer.{k}": torch.full((100,), float(k)) for k in range(10)}
    folder = tmp_path / "model"
    write_tensors(folder, holding(tensors), max_shard_bytes=1000, config={"model_type": "x"})
    assert len(shards(folder)) == 5
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"] == {"total_size": 4000}
    assert set(index["weight_map"].values()) == set(shards(folder))
    found = open_tensors(folder)
    assert_same(found, tensors)
    assert found.metadata["config"] == {"model_type": "x"}
    assert_same(open_tensors(folder / "model.safetensors.index.json"), tensors)


def test_ties_across_shards_come_back(tmp_path: Path) -> None:
    shared = torch.randn(100)
    tensors = {"embed": shared, "body": torch.randn(100), "head": shared, "last": torch.ones(1)}
    write_tensors(tmp_path / "m", holding(tensors), max_shard_bytes=400)
    found = open_tensors(tmp_path / "m")
    assert_same(found, tensors)
    assert found.tied == {"head": "embed"}


def test_pytorch_bin_shards_are_read(tmp_path: Path) -> None:
    first, second = {"a": torch.ones(3)}, {"b": torch.zeros(2)}
    torch.save(first, tmp_path / "pytorch_model-00001-of-00002.bin")
    torch.save(second, tmp_path / "pytorch_model-00002-of-00002.bin")
    places = {
        "a": "pytorch_model-00001-of-00002.bin",
        "b": "pytorch_model-00002-of-00002.bin",
    }
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": places}))
    assert_same(open_tensors(tmp_path), first | second)


def test_a_tied_head_that_a_folder_leaves_out_is_said(tmp_path: Path) -> None:
    safetensors.torch.save_file({"embed.weight": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"tie_word_embeddings": true}')
    found = open_tensors(tmp_path)
    assert list(found) == ["embed.weight"]
    assert "ties" in found.notes[0]


def sharded(folder: Path, places: Mapping[str, object]) -> Path:
    """Write a folder of the shards x and y, holding a and b, with an index of ill will."""
    folder.mkdir(exist_ok=True)
    safetensors.torch.save_file({"a": torch.ones(2)}, folder / "x.safetensors")
    safetensors.torch.save_file({"b": torch.ones(2)}, folder / "y.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "/etc/passwd", "..", "", "sub/x.safetensors", "..\\x.safetensors", "a\0b"],
)
def test_an_index_leads_nowhere_out_of_its_folder(tmp_path: Path, name: str) -> None:
    safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "x.safetensors")
    folder = sharded(tmp_path / "m", {"a": name, "b": "y.safetensors"})
    with pytest.raises(UnsafeFile):
        open_tensors(folder)


def test_a_link_out_of_a_folder_is_refused_but_not_a_download_cache(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m", {"a": "x.safetensors", "b": "y.safetensors"})
    (folder / "x.safetensors").rename(tmp_path / "secret.safetensors")
    (folder / "x.safetensors").symlink_to(tmp_path / "secret.safetensors")
    with pytest.raises(UnsafeFile, match="link"):
        open_tensors(folder)
    snapshot, blobs = tmp_path / "models" / "snapshots" / "1f", tmp_path / "models" / "blobs"
    snapshot.mkdir(parents=True)
    blobs.mkdir()
    safetensors.torch.save_file({"a": torch.ones(2)}, blobs / "0badcafe")
    (snapshot / "model.safetensors").symlink_to("../../blobs/0badcafe")
    assert_same(open_tensors(snapshot), {"a": torch.ones(2)})


BAD_INDEXES: dict[str, Mapping[str, object]] = {
    "a shard is missing": {"a": "x.safetensors", "b": "z.safetensors"},
    "a tensor is missing": {"a": "x.safetensors", "b": "y.safetensors", "c": "y.safetensors"},
    "a tensor is too much": {"a": "x.safetensors"} | {"c": "y.safetensors"},
    "places are swapped": {"a": "y.safetensors", "b": "x.safetensors"},
    "places are no names": {"a": ["x.safetensors"]},
}


@pytest.mark.parametrize("places", BAD_INDEXES.values(), ids=BAD_INDEXES)
def test_shards_and_index_must_agree(tmp_path: Path, places: Mapping[str, object]) -> None:
    with pytest.raises((FileDamaged, FileNotRead)):
        open_tensors(sharded(tmp_path / "m", places))


@pytest.mark.parametrize("name", ["config.json", "mmdb.json"])
@pytest.mark.parametrize("text", ["[]", "{", "[" * 200_000, "3"])
def test_a_config_that_is_no_object_is_refused(tmp_path: Path, name: str, text: str) -> None:
    safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    (tmp_path / name).write_text(text)
    with pytest.raises(FileDamaged, match=name):
        open_tensors(tmp_path)


def test_a_folder_without_weights_or_with_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotRead, match=r"no \*\.safetensors"):
        open_tensors(tmp_path)
    for name in ("model.safetensors", "other.safetensors"):
        safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / name)
    with pytest.raises(FileNotRead, match="2 sets of weights"):
        open_tensors(tmp_path)


@pytest.mark.parametrize("name", ["nothing.pt", "pipe", "locked"])
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str) -> None:
    if name == "pipe":
        os.mkfifo(tmp_path / name)
    if name == "locked":
        (tmp_path / name).symlink_to(name)  # a circle
    with pytest.raises(FileNotRead, match=name):
        open_tensors(tmp_path / name)


# -- writing ------------------------------------------------------------------

TARGETS = ["m.safetensors", "m.pt", "folder"]


def listing(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_overwritten_unasked(tmp_path: Path, name: str) -> None:
    write_tensors(tmp_path / name, holding(example(0)))
    before = listing(tmp_path)
    with pytest.raises(FileExists, match=name):
        write_tensors(tmp_path / name, holding(example(1)))
    assert listing(tmp_path) == before
    write_tensors(tmp_path / name, holding(example(1)), overwrite=True)
    assert_same(open_tensors(tmp_path / name), example(1))
    assert list(listing(tmp_path)) == list(before)


def test_overwriting_a_folder_replaces_all_shards_and_keeps_other_files(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_tensors(folder, holding(example(0)), max_shard_bytes=40)
    (folder / "tokenizer.json").write_text("{}")
    write_tensors(folder, holding(example(1)), overwrite=True)
    names = ["config.json", "mmdb.json", "model.safetensors", "tokenizer.json"]
    assert list(listing(folder)) == names
    assert_same(open_tensors(folder), example(1))
    write_tensors(folder, holding(example(2)), overwrite=True, max_shard_bytes=40)
    assert_same(open_tensors(folder), example(2))
    assert (folder / "tokenizer.json").exists()


@pytest.mark.parametrize("name", TARGETS)
def test_a_read_that_fails_leaves_no_file(tmp_path: Path, name: str) -> None:
    def load(paths: Sequence[str]) -> Mapping[str, torch.Tensor]:
        raise FileDamaged("the source is damaged")

    tensors = LazyTensors(holding(example()).specs, load)
    with pytest.raises(FileDamaged, match="the source"):
        write_tensors(tmp_path / name, tensors)
    assert not list(tmp_path.iterdir())


def test_a_target_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    for name in ("missing/m.safetensors", "missing/m.pt", "missing/folder"):
        with pytest.raises(FileNotWritten, match="missing"):
            write_tensors(tmp_path / name, holding(example()))
    (tmp_path / "file").write_text("")
    with pytest.raises(FileExists, match="is a file"):
        write_tensors(tmp_path / "file", holding(example()), format="huggingface", overwrite=True)
    (tmp_path / "m.pt").mkdir()
    with pytest.raises(FileExists):
        write_tensors(tmp_path / "m.pt", holding(example()), format="torch", overwrite=True)


FULL = """
import resource, sys, torch
from pathlib import Path
from mmdb.errors import FileNotWritten
from mmdb.store.files.formats import write_tensors
from mmdb.store.files.lazy import LazyTensors
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for name in ("m.safetensors", "m.pt", "folder"):
    try:
        write_tensors(Path(sys.argv[1]) / name, LazyTensors.holding({"a": torch.ones(100_000)}))
    except FileNotWritten as error:
        print(error.message)
"""


def test_a_full_disk_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("could not be written") == 3, done.stdout + done.stderr
    assert not list(tmp_path.iterdir())
