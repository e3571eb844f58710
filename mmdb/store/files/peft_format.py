"""Folders of peft: adapter_config.json, and an adapter's matrices in adapter_model.safetensors.

Source: peft, `PeftModel.save_pretrained`: tensors have the network's paths behind
`base_model.model.`; a layer's matrices are `lora_A.weight` and `lora_B.weight`, and modules that
train whole have their own paths.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch

from mmdb.arguments import is_number, is_whole
from mmdb.errors import FileDamaged, FileNotRead, UnsupportedContent
from mmdb.store.files.huggingface_format import inside, read_json, write_json
from mmdb.store.files.lazy import LazyTensors, Spec
from mmdb.store.files.safetensors_format import open_safetensors, write_safetensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
#: By the end of a path in mmdb's state dict, that in peft's.
_ENDS = {".adapter_a": ".lora_A.weight", ".adapter_b": ".lora_B.weight"}
#: Options of peft's that change what an adapter computes, and what they are when they do not.
_PLAIN: dict[str, Any] = {
    "bias": "none", "use_dora": False, "rank_pattern": {}, "alpha_pattern": {},
    "layer_replication": None, "lora_bias": False, "exclude_modules": None,
}  # fmt: skip


def is_peft(folder: Path) -> bool:
    """Return whether a folder holds an adapter."""
    return (folder / CONFIG).is_file()


def open_peft(folder: Path) -> tuple[dict[str, Any], LazyTensors]:
    """Return an adapter, as an architecture has it, and its tensors by mmdb's paths.

    Raises:
        FileNotRead, FileDamaged
        UnsupportedContent: it is no LoRA, or one with options that mmdb does not have.
    """
    config = read_json(inside(folder, CONFIG))
    if config.get("peft_type") != "LORA":
        raise UnsupportedContent(f"{folder} holds an adapter of kind {config.get('peft_type')!r}.")
    for key, plain in _PLAIN.items():
        if config.get(key, plain) not in (plain, None):
            raise UnsupportedContent(f"The adapter in {folder} has {key} {config[key]!r}.")
    rank, alpha = config.get("r"), config.get("lora_alpha")
    if not is_whole(rank, 1) or not is_number(alpha, 0) or not alpha:
        raise FileDamaged(f"{folder / CONFIG} has no rank r and lora_alpha.")
    if config.get("use_rslora"):  # alpha / sqrt(r), Kalajdzievski 2023
        alpha *= math.sqrt(rank)
    if not (folder / WEIGHTS).is_file():
        raise FileNotRead(f"{folder} lacks its file {WEIGHTS}.", hint="Fetch the missing file.")
    stored = open_safetensors(inside(folder, WEIGHTS))
    names = {_own_path(folder, name): name for name in stored}
    whole = config.get("modules_to_save") or []
    if not isinstance(whole, list):
        raise FileDamaged(f"{folder / CONFIG} has modules_to_save that are no list.")
    adapter = {
        "name": "lora",
        "rank": rank,
        "alpha": alpha,
        "layers": sorted(p[: -len(".adapter_a")] for p in names if p.endswith(".adapter_a")),
        "train": sorted({_module(p, whole) for p in names if not p.endswith(tuple(_ENDS))}),
    }

    def load(paths: Sequence[str]) -> dict[str, torch.Tensor]:
        read = stored.read_many([names[path] for path in paths])
        return {path: _flat(path, read[names[path]]) for path in paths}

    specs = {
        path: Spec(spec.dtype, _flat_shape(path, spec.shape))
        for path, spec in ((path, stored.specs[name]) for path, name in names.items())
    }
    return adapter, LazyTensors(specs, load, metadata=stored.metadata)


def _own_path(folder: Path, name: str) -> str:
    if not name.startswith(_PREFIX):
        raise FileDamaged(f"{folder / WEIGHTS} has a tensor {name!r}, which is none of an adapter.")
    path = name.removeprefix(_PREFIX).replace(".modules_to_save.default.", ".")
    for own, theirs in _ENDS.items():
        if path.endswith(theirs):
            return path.removesuffix(theirs) + own
    if ".lora_" in path:
        raise UnsupportedContent(f"The adapter in {folder} has {path!r}, which mmdb does not have.")
    return path


def _module(path: str, whole: Sequence[Any]) -> str:
    """Return the path of the module that trains whole to which a tensor belongs."""
    parts = path.split(".")
    for count in range(1, len(parts)):
        if parts[count - 1] in whole or ".".join(parts[:count]) in whole:
            return ".".join(parts[:count])
    return ".".join(parts[:-1])


def _flat(path: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return a convolution's matrix as mmdb has it, of two dimensions."""
    return tensor.flatten(1) if path.endswith(tuple(_ENDS)) else tensor


def _flat_shape(path: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], math.prod(shape[1:])) if path.endswith(tuple(_ENDS)) else shape


def write_peft(
    folder: Path, tensors: LazyTensors, adapter: Mapping[str, Any], own: Mapping[str, Any]
) -> int:
    """Write an adapter out of a network's tensors into an empty folder; return the bytes.

    Args:
        adapter: as the architecture has it.
        own: what mmdb knows of it, for `import_model`.
    """
    trains = adapter.get("train", [])
    wanted = [p for p in tensors if p.endswith(tuple(_ENDS)) or _is_in(p, trains)]
    names = {_their_path(path): path for path in wanted}
    shapes = {name: _their_shape(path, tensors) for name, path in names.items()}

    def load(paths: Sequence[str]) -> dict[str, torch.Tensor]:
        read = {name: tensors[names[name]] for name in paths}
        return {name: tensor.reshape(shapes[name]) for name, tensor in read.items()}

    specs = {name: Spec(tensors.specs[path].dtype, shapes[name]) for name, path in names.items()}
    with (folder / WEIGHTS).open("wb") as file:
        count = write_safetensors(file, LazyTensors(specs, load), own=own)
    layers = sorted(p.removesuffix(".adapter_a") for p in wanted if p.endswith(".adapter_a"))
    alpha = adapter.get("alpha", 16)
    rank = tensors.specs[f"{layers[0]}.adapter_a"].shape[0]
    write_json(
        folder / CONFIG,
        {
            "peft_type": "LORA",
            "task_type": None,
            "base_model_name_or_path": None,
            "inference_mode": True,
            "r": rank,
            "lora_alpha": int(alpha) if alpha == int(alpha) else alpha,
            "lora_dropout": 0.0,
            "target_modules": layers,
            "modules_to_save": sorted({_trained(p, trains) for p in wanted if _is_in(p, trains)})
            or None,
            "bias": "none",
            "fan_in_fan_out": any(_is_transposed(layer, tensors) for layer in layers),
        },
    )
    return count + (folder / CONFIG).stat().st_size


def _is_transposed(layer: str, tensors: LazyTensors) -> bool:
    """Return whether a layer's weight is (in, out), as far as shapes tell; peft looks, too."""
    shape = tensors.specs[f"{layer}.weight"].shape
    inputs = tensors.specs[f"{layer}.adapter_a"].shape[1]
    return len(shape) == 2 and inputs == shape[0] != shape[1]


def _is_in(path: str, patterns: Sequence[str]) -> bool:
    return not path.endswith(tuple(_ENDS)) and _trained(path, patterns) != ""


def _trained(path: str, patterns: Sequence[str]) -> str:
    """Return the path of the outermost module of a tensor that trains whole; empty: of none."""
    parts = path.split(".")
    for count in range(1, len(parts)):
        if any(fnmatchcase(".".join(parts[:count]), one) for one in patterns):
            return ".".join(parts[:count])
    return ""


def _their_path(path: str) -> str:
    for own, theirs in _ENDS.items():
        if path.endswith(own):
            return _PREFIX + path.removesuffix(own) + theirs
    return _PREFIX + path


def _their_shape(path: str, tensors: LazyTensors) -> tuple[int, ...]:
    """Return the shape of a tensor in peft, whose matrices of a convolution have four sides."""
    shape = tensors.specs[path].shape
    layer, _, end = path.rpartition(".")
    if f".{end}" not in _ENDS:
        return shape
    sides = tensors.specs[f"{layer}.weight"].shape[1:]
    if len(sides) == 1:
        return shape
    return (shape[0], *sides) if end == "adapter_a" else (*shape, 1, 1)
