"""Models whose steps are predicted: shipped factories, and libraries' where they are installed.

Sizes are such that a step takes milliseconds on one core; nothing is downloaded.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.graph.factories import cnn, linear, mlp, resnet, transformer

CLASSES = 10
#: Words of a vocabulary that inputs are drawn from.
WORDS = 1000
_FLAT, _IMAGES, _FEW, _LEAST = (32, 128, 512), (8, 32, 64), (4, 16, 32), (2, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A model, and the batches that it is trained in."""

    name: str
    family: str
    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    dtype: str = "float32"
    batches: tuple[int, ...] = _FEW


def models() -> list[Model]:
    """Return all models whose libraries are installed."""
    found = list(_shipped())
    if find_spec("pytorchcv"):
        found += _pytorchcv()
    if find_spec("transformers"):
        found += _transformers()
    return found


def _shipped() -> Iterator[Model]:
    image, small = (3, 32, 32), (1, 28, 28)
    wide = partial(mlp, hidden=[1024, 1024, 1024], activation="gelu")
    of: list[tuple[str, Callable[..., nn.Module], tuple[int, ...], tuple[int, ...]]] = [
        ("linear 64", linear, (64,), _FLAT),
        ("linear 4096", linear, (4096,), _FLAT),
        ("mlp 64", mlp, (64,), _FLAT),
        ("mlp 256 norm dropout",
         partial(mlp, hidden=[256, 256], batch_norm=True, dropout=0.2), (128,), _FLAT),
        ("mlp 1024 gelu", wide, (256,), _FLAT),
        ("cnn 8", partial(cnn, width=8), small, _IMAGES),
        ("cnn 32", partial(cnn, width=32), image, _IMAGES),
        ("cnn 16 dropout", partial(cnn, width=16, depth=4, dropout=0.3), image, _IMAGES),
        ("resnet 8", partial(resnet, width=8), image, _IMAGES),
        ("resnet 16 blocks", partial(resnet, width=16, blocks=2), image, _IMAGES),
        ("resnet 32", partial(resnet, width=32), small, _IMAGES),
        ("transformer 64", transformer, (16, 8), _IMAGES),
        ("transformer 128", partial(transformer, d_model=128, layers=4), (32, 16), _IMAGES),
        ("transformer 64 dropout", partial(transformer, dropout=0.1), (64,), _IMAGES),
    ]  # fmt: skip
    for name, factory, shape, batches in of:
        build = partial(factory, shape, CLASSES)
        yield Model(name=name, family=name.split()[0], build=build, shape=shape, batches=batches)


#: By family: names, the side of the image, batches.
_CV: Mapping[str, tuple[str, int, tuple[int, ...]]] = {
    "nin": ("nin_cifar10", 32, _LEAST),
    "resnet": ("resnet20_cifar10 preresnet20_cifar10", 32, _FEW),
    "seresnet": ("seresnet20_cifar10", 32, _FEW),
    "densenet": ("densenet40_k12_bc_cifar10", 32, (2, 4, 8)),
    "resnext": ("resnext20_16x4d_cifar10", 32, (2, 4, 8)),
    "diaresnet": ("diaresnet20_cifar10", 32, _FEW),
    "squeezenet": ("squeezenet_v1_1", 64, _FEW),
    "mobilenet": ("mobilenet_wd4", 64, _FEW),
    "mobilenetv2": ("mobilenetv2_wd4", 64, _FEW),
    "shufflenet": ("shufflenetv2_wd2 shufflenet_g3_wd4", 64, _FEW),
    "mnasnet": ("mnasnet_small", 64, _FEW),
    "ghostnet": ("ghostnet", 64, _LEAST),
    "regnet": ("regnetx002", 64, _FEW),
    "darknet": ("darknet_tiny", 64, _FEW),
    "squeezenext": ("sqnxt23_w1", 64, _LEAST),
    "peleenet": ("peleenet", 64, _LEAST),
    "igcv3": ("igcv3_wd4", 64, _LEAST),
    "hardnet": ("hardnet39ds", 64, _LEAST),
    "mixnet": ("mixnet_s", 64, _LEAST),
    "vovnet": ("vovnet27s", 64, _LEAST),
}


def _pytorchcv() -> Iterator[Model]:
    # torchvision, where it is for CUDA, does not import beside torch for the CPU without this.
    name = "torchvision._meta_registrations"
    sys.modules.setdefault(name, types.ModuleType(name))
    for family, (names, side, batches) in _CV.items():
        for one in names.split():
            yield Model(
                name=f"pytorchcv {one}",
                family=family,
                build=partial(_convolutional, one, side),
                shape=(3, side, side),
                batches=batches,
            )


def _convolutional(name: str, side: int) -> nn.Module:
    provider = import_module("pytorchcv.model_provider")
    size = {} if side == 32 else {"in_size": (side, side)}
    module: nn.Module = provider.get_model(name, pretrained=False, num_classes=CLASSES, **size)
    # They end with a mean over the whole of a larger image.
    for parent in list(module.modules()):
        for path, child in list(parent.named_children()):
            if isinstance(child, nn.AvgPool2d) and child.kernel_size in (7, 13, 14):
                setattr(parent, path, nn.AdaptiveAvgPool2d(1))
    return module


class _Logits(nn.Module):
    """The logits alone of a classifier's result."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(x).logits
        return logits


class _Headed(nn.Module):
    """A linear layer over the mean of the tokens."""

    def __init__(self, model: nn.Module, width: int) -> None:
        super().__init__()
        self.model, self.head = model, nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.model(x).last_hidden_state.mean(1))
        return result


_BERT = {
    "vocab_size": WORDS, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 512, "max_position_embeddings": 128, "num_labels": CLASSES,
}  # fmt: skip
_GPT = {"vocab_size": WORDS, "use_cache": False}
_TINY: Mapping[str, tuple[str, tuple[int, ...], Mapping[str, Any]]] = {
    "bert": ("BertForSequenceClassification", (32,), _BERT),
    "electra": ("ElectraForSequenceClassification", (64,), _BERT | {"embedding_size": 64}),
    "albert": (
        "AlbertForSequenceClassification", (32,),
        _BERT | {"embedding_size": 64, "num_hidden_layers": 4},
    ),
    "distilbert": (
        "DistilBertForSequenceClassification", (32,),
        {"vocab_size": 8000, "dim": 192, "n_layers": 3, "n_heads": 4, "hidden_dim": 768,
         "num_labels": CLASSES},
    ),
    "fnet": (
        "FNetForSequenceClassification", (32,),
        {key: value for key, value in _BERT.items() if key != "num_attention_heads"},
    ),
    "gpt2": (
        "GPT2Model", (64,), _GPT | {"n_embd": 128, "n_layer": 3, "n_head": 4, "n_positions": 64},
    ),
    "llama": (
        "LlamaModel", (64,),
        _GPT | {"hidden_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4,
                "intermediate_size": 384},
    ),
    "opt": (
        "OPTModel", (32,),
        _GPT | {"hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
                "ffn_dim": 512, "word_embed_proj_dim": 128},
    ),
    "vit": (
        "ViTForImageClassification", (3, 32, 32),
        {"image_size": 32, "patch_size": 4, "hidden_size": 96, "num_hidden_layers": 4,
         "num_attention_heads": 4, "intermediate_size": 384, "num_labels": CLASSES},
    ),
    "convnext": (
        "ConvNextForImageClassification", (3, 64, 64),
        {"image_size": 64, "hidden_sizes": [24, 48, 96, 192], "depths": [1, 1, 2, 1],
         "num_labels": CLASSES},
    ),
    "swin": (
        "SwinForImageClassification", (3, 64, 64),
        {"image_size": 64, "patch_size": 4, "embed_dim": 48, "depths": [1, 2],
         "num_heads": [2, 4], "window_size": 4, "num_labels": CLASSES},
    ),
    "poolformer": (
        "PoolFormerForImageClassification", (3, 64, 64),
        {"hidden_sizes": [16, 32, 64, 128], "depths": [1, 1, 2, 1], "num_labels": CLASSES},
    ),
}  # fmt: skip


def _transformers() -> Iterator[Model]:
    for kind, (_, shape, _) in _TINY.items():
        yield Model(
            name=f"transformers {kind}",
            family="bert" if kind == "electra" else kind,
            build=partial(_of_config, kind),
            shape=shape,
            dtype="int64" if len(shape) == 1 else "float32",
        )


def _of_config(kind: str) -> nn.Module:
    library = import_module("transformers")
    library.utils.logging.set_verbosity_error()
    name, _, given = _TINY[kind]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = getattr(library, name)(library.CONFIG_MAPPING[kind](**given))
    if name.endswith("Model"):
        return _Headed(model, int(given.get("hidden_size") or given["n_embd"]))
    return _Logits(model)


def rows_of(model: Model, count: int) -> tuple[Tensor, Tensor]:
    """Return made-up rows and their labels."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(0, CLASSES, (count,), generator=generator)
    if model.dtype == "int64":
        return torch.randint(4, WORDS, (count, *model.shape), generator=generator), y
    return torch.rand((count, *model.shape), generator=generator), y
