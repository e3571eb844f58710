"""Part `draws`: networks of timm, torchvision and transformers, drawn by name, beside their own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from mmdb.api import Database
from mmdb.bench.figures import Figure, at_least
from mmdb.errors import MmdbError
from mmdb.graph.spec.build import initial_module, parameter_count
from mmdb.graph.spec.parse import LIBRARIES
from mmdb.graph.trace.stand_ins import on_meta

_FACTORIES = {name: f"mmdb.graph.libraries:{name}" for name in LIBRARIES}
_OUTPUTS, _MOST, _CLOSE, _TOKENS = 5, 100_000_000, 1e-6, 12
#: Sizes of the configurations that are drawn: those that a class has.
_SIZES: dict[str, tuple[int, ...]] = {
    "hidden_size": (32, 64), "d_model": (32, 64), "n_embd": (32, 64), "dim": (32, 64),
    "num_hidden_layers": (1, 2), "n_layer": (1, 2), "n_layers": (1, 2), "num_layers": (1, 2),
    "encoder_layers": (1, 2), "decoder_layers": (1, 2), "num_attention_heads": (2, 4),
    "num_key_value_heads": (2,), "n_head": (2, 4), "n_heads": (2, 4),
    "encoder_attention_heads": (2,), "decoder_attention_heads": (2,),
    "intermediate_size": (64, 96), "encoder_ffn_dim": (64,),
    "decoder_ffn_dim": (64,), "vocab_size": (300, 500), "image_size": (32, 64), "patch_size": (8,),
    "embedding_size": (32,), "head_dim": (16,), "num_local_experts": (4,), "num_experts": (4,),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A network by its architecture, with what builds and runs the library's own."""

    name: str
    architecture: Mapping[str, Any]
    shape: tuple[int, ...]
    own: Callable[[], nn.Module]
    run: Callable[[nn.Module, Tensor], Tensor] = lambda module, x: module(x)


def bench_draws(db: Database, prefix: str, *, count: int, seed: int) -> Iterator[Figure]:
    """Build, save and recover drawn networks; those too large, or that the library cannot run
    itself, are replaced by the next that is drawn.
    """
    for library, draw in (("timm", _timm), ("torchvision", _torchvision), ("transformers", _texts)):
        try:
            import_module(library)
        except (ImportError, OSError, RuntimeError) as error:  # torchvision of another torch
            print(f"{library} is missing: {error}")
            continue
        draws = draw(random.Random(seed))
        tried = right = passed = 0
        for one in draws:
            if tried == count:
                break
            try:
                small = _size(one) <= _MOST
                x = _rows(one.shape)
                wanted = one.own().eval() if small else None
                if wanted is None or not one.run(wanted, x).isfinite().all():
                    raise ValueError("too large, or not finite")
            except Exception as error:  # the library's own does not run so
                passed += 1
                print(f"{library}:{one.name} is passed over: {type(error).__name__}: {error!s:.90}")
                continue
            tried += 1
            why = _difference(db, f"{prefix}{library}", one, wanted, x)
            right += not why
            print(f"{library}:{one.name} {why or 'is right'}", flush=True)
        name = f"{db.connection.engine}: networks of {library} that are right, of {tried}"
        yield at_least(name, [right], "", tried)
        yield Figure(f"networks of {library} passed over", passed, "")


def _size(one: _Drawn) -> int:
    try:
        with on_meta():
            return parameter_count(one.own())
    except (NotImplementedError, RuntimeError):  # it computes its sizes by tensors
        return parameter_count(one.own())


def _difference(db: Database, name: str, one: _Drawn, own: nn.Module, x: Tensor) -> str:
    """Return why a network is not the library's own; nothing where it is."""
    about: dict[str, Any] = {"input_shape": one.shape, "outputs": _OUTPUTS}
    try:
        made = initial_module(one.architecture, {}, one.shape, _OUTPUTS, _FACTORIES, seed=3).eval()
        saved = db.save(name, made, architecture=one.architecture, **about)
        found = db.recover(saved.reference)
        db.drop_model(saved.reference)
        db.gc(dry_run=False, grace="0 days")
        state = found.state_dict()
        own.load_state_dict(state)
        with torch.no_grad():
            apart = (one.run(own, x) - found(x)).abs().max().item()
    except (MmdbError, RuntimeError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "" if apart <= _CLOSE else f"differs by {apart:g}"


def _rows(shape: tuple[int, ...]) -> Tensor:
    torch.manual_seed(7)
    return torch.rand(2, *shape) if len(shape) == 3 else torch.randint(1, 290, (2, *shape))


def _timm(drawn: random.Random) -> Iterator[_Drawn]:
    library: Any = import_module("timm")
    names = library.list_models()
    drawn.shuffle(names)
    for name in names:
        config = library.get_pretrained_cfg(name, allow_unregistered=True)
        shape = tuple(config.input_size)
        more: dict[str, Any] = {"in_chans": shape[0], "num_classes": _OUTPUTS}
        if config.fixed_input_size:
            more["img_size"] = shape[1:]
        architecture = {"factory": "timm", "arguments": {"name": name}}
        own = _later(library.create_model, name, pretrained=False, **more)
        yield _Drawn(name, architecture, shape, own)


def _torchvision(drawn: random.Random) -> Iterator[_Drawn]:
    models: Any = import_module("torchvision").models
    names = models.list_models(module=models)
    drawn.shuffle(names)
    for name in names:
        more: dict[str, Any] = {"num_classes": _OUTPUTS}
        if name in ("googlenet", "inception_v3"):
            more |= {"aux_logits": False, "init_weights": False}
        side = 299 if name == "inception_v3" else 224
        architecture = {"factory": "torchvision", "arguments": {"name": name}}
        own = _later(models.get_model, name, weights=None, **more)
        yield _Drawn(name, architecture, (3, side, side), own)


def _texts(drawn: random.Random) -> Iterator[_Drawn]:
    library: Any = import_module("transformers")
    kinds = sorted(library.CONFIG_MAPPING)
    drawn.shuffle(kinds)
    for kind in kinds:
        made = library.CONFIG_MAPPING[kind]
        pictures = made in library.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING
        mapping = library.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
        mapping = library.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING if pictures else mapping
        if made not in mapping:
            continue
        found = mapping[made]
        cls = found[0] if isinstance(found, tuple) else found
        default = made()
        given = {k: drawn.choice(v) for k, v in _SIZES.items() if _is_size(default, k)}
        side = given.get("image_size", 64)
        shape = (3, side, side) if pictures else (_TOKENS,)
        architecture = {"factory": "transformers", "arguments": {"name": kind, **given}}
        yield _Drawn(kind, architecture, shape, _later(_own_text, cls, made, given), _logits)


def _own_text(cls: Any, made: Any, given: Mapping[str, Any]) -> nn.Module:
    config = made(**given, num_labels=_OUTPUTS)
    if getattr(config, "pad_token_id", None) is None:
        config.pad_token_id = 0
    module: nn.Module = cls(config)
    return module


def _is_size(config: Any, key: str) -> bool:
    return isinstance(getattr(config, key, None), int)


def _logits(module: Any, x: Tensor) -> Tensor:
    name = module.main_input_name
    given = {name: x}
    if name == "input_ids":
        given["attention_mask"] = (x != module.config.pad_token_id).long()
    with torch.no_grad():
        logits: Tensor = module(**given).logits
    return logits


def _later(make: Callable[..., Any], *arguments: Any, **named: Any) -> Callable[[], nn.Module]:
    return lambda: make(*arguments, **named)
