"""Architectures of public libraries, with random weights or none, for benchmarks of matching.

The libraries are imported where they are installed; nothing is downloaded.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, cast

import torch
from torch import nn

#: Sizes that a transformers config is given where its own are too large to run with values.
SMALL: Mapping[str, int] = {
    "num_hidden_layers": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "n_layers": 2, "n_layer": 2, "num_encoder_layers": 2, "num_decoder_layers": 2,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 8, "vocab_size": 1024,
    "moe_num_experts": 4,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Architecture:
    """One that can be built: `build(reduced)`, reduced for fewer layers and experts."""

    name: str
    build: Callable[[bool], nn.Module]


def architectures(library: str) -> list[Architecture]:
    """Return all architectures of a library, by name.

    Raises:
        KeyError: the library is none of pytorchcv, timm and transformers.
    """
    # torchvision's CUDA build does not import beside torch's CPU build without this.
    sys.modules.setdefault(
        "torchvision._meta_registrations", types.ModuleType("torchvision._meta_registrations")
    )
    with quiet():
        found = {"pytorchcv": _pytorchcv, "timm": _timm, "transformers": _transformers}[library]()
        return sorted(found, key=lambda one: one.name)


@contextmanager
def quiet() -> Iterator[None]:
    """Let no library warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _weightless(build: Callable[[], nn.Module]) -> nn.Module:
    """Build on the meta device, or with random weights if it does not work there."""
    state = torch.get_rng_state()
    try:
        with quiet():
            try:
                with torch.device("meta"):
                    return build()
            except Exception:  # the library's code
                return build()
    finally:
        torch.set_rng_state(state)


def _pytorchcv() -> Iterator[Architecture]:
    provider = import_module("pytorchcv.model_provider")
    for name in provider._models:

        def build(_: bool, name: str = name) -> nn.Module:
            return _weightless(lambda: provider.get_model(name, pretrained=False))

        yield Architecture(name, build)


def _timm() -> Iterator[Architecture]:
    timm = import_module("timm")
    for name in timm.list_models():

        def build(_: bool, name: str = name) -> nn.Module:
            return _weightless(lambda: timm.create_model(name, pretrained=False))

        yield Architecture(name, build)


_HEADS = (
    "MODEL",
    "MODEL_FOR_CAUSAL_LM",
    "MODEL_FOR_MASKED_LM",
    "MODEL_FOR_SEQUENCE_CLASSIFICATION",
    "MODEL_FOR_IMAGE_CLASSIFICATION",
)


def _transformers() -> Iterator[Architecture]:
    import_module("transformers").utils.logging.set_verbosity_error()
    auto = import_module("transformers.models.auto.modeling_auto")
    seen = set()
    for head in _HEADS:
        for kind, classes in getattr(auto, f"{head}_MAPPING_NAMES").items():
            for name in classes if isinstance(classes, tuple | list) else (classes,):
                if (kind, name) not in seen:
                    seen.add((kind, name))
                    yield Architecture(f"{kind}:{name}", _from_config(auto, head, kind, name))


def _from_config(auto: Any, head: str, kind: str, name: str) -> Callable[[bool], nn.Module]:
    def build(reduced: bool) -> nn.Module:
        config = import_module("transformers").CONFIG_MAPPING[kind]()
        cls = getattr(auto, f"{head}_MAPPING")._load_attr_from_module(kind, name)
        if not reduced:
            return _weightless(lambda: cls(config))
        _reduce(config)
        with quiet():
            return cast("nn.Module", cls(config))  # with its buffers' values

    return build


def _reduce(config: Any) -> None:
    for name, size in SMALL.items():
        value = getattr(config, name, None)
        if isinstance(value, int) and value > size:
            setattr(config, name, size)
    for value in vars(config).values():
        if hasattr(value, "model_type"):
            _reduce(value)
