"""The architecture that a config.json names: of transformers, or of timm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mmdb.arguments import is_whole
from mmdb.errors import ArchitectureError
from mmdb.messages import show

#: Tokens of a row where a configuration says none, or more.
_TOKENS = 512
#: What says how many numbers a network returns that has no classes.
_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredNetwork:
    """A network as its config.json describes it."""

    architecture: dict[str, object]
    input_shape: tuple[int, ...]  # of one row: tokens, or channels, height and width
    outputs: int
    classes: tuple[str, ...] = ()  # by output, where they have names of their own


def configured(config: Mapping[str, Any]) -> ConfiguredNetwork | None:
    """Return the network that a config.json describes; None where it names none."""
    if isinstance(config.get("model_type"), str):
        return _of_transformers(config)
    if isinstance(config.get("architecture"), str):
        return _of_timm(config)
    return None


def _of_transformers(config: Mapping[str, Any]) -> ConfiguredNetwork:
    named = config.get("architectures")
    model = str(named[0]) if isinstance(named, list) and named else None
    names = config.get("id2label")
    classes = tuple(map(str, names.values())) if isinstance(names, Mapping) else ()
    outputs = len(classes) or _whole(config, ("num_labels",), 2)
    if model is not None and model.endswith(("ForCausalLM", "LMHeadModel")):
        classes, outputs = (), _whole(config, ("vocab_size",), 1)
    elif model is not None and "Classification" not in model:
        classes, outputs = (), _whole(config, _WIDTHS, 1)
    arguments: dict[str, object] = {"config": dict(config)}
    if model is not None:
        arguments["model"] = model
    if "image_size" in config:
        size = config["image_size"]
        sides = size if isinstance(size, list) else [size, size]
        shape = _sizes("image_size", [_whole(config, ("num_channels",), 3), *sides])
    else:
        shape = (min(_whole(config, ("max_position_embeddings", "n_positions"), _TOKENS), _TOKENS),)
    own = any(name != f"LABEL_{place}" for place, name in enumerate(classes))
    return ConfiguredNetwork(
        architecture={"factory": "transformers", "arguments": arguments},
        input_shape=shape,
        outputs=outputs,
        classes=classes if own else (),
    )


def _of_timm(config: Mapping[str, Any]) -> ConfiguredNetwork:
    pretrained = config.get("pretrained_cfg")
    about = pretrained if isinstance(pretrained, Mapping) else {}
    given = config.get("model_args")
    size = about.get("input_size", (3, 224, 224))
    names = config.get("label_names")
    arguments = {"name": config["architecture"], **(given if isinstance(given, Mapping) else {})}
    return ConfiguredNetwork(
        architecture={"factory": "timm", "arguments": arguments},
        input_shape=_sizes("input_size", size),
        outputs=_whole(config, ("num_classes",), _whole(about, ("num_classes",), 1000)),
        classes=tuple(map(str, names)) if isinstance(names, list) else (),
    )


def _sizes(name: str, value: object) -> tuple[int, ...]:
    """Return channels, height and width.

    Raises:
        ArchitectureError
    """
    is_list = isinstance(value, list | tuple) and len(value) == 3
    if not is_list or not all(is_whole(side, 1, 2**20) for side in value):  # type: ignore[attr-defined]
        raise ArchitectureError(
            f"config.json has {name} {show(value)}.", hint="It is a size, or height and width."
        )
    return tuple(value)  # type: ignore[arg-type]


def _whole(config: Mapping[str, Any], names: tuple[str, ...], other: int) -> int:
    found = (config[name] for name in names if is_whole(config.get(name), 1))
    return int(next(found, other))
