"""Networks that installed libraries define, such as `timm:resnet18` and `transformers:bert`.

Classes come from the installed package alone: weights are never fetched, a file that an argument
names is never read, and what a model's folder holds is never run.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.fx import Proxy

from mmdb.errors import FactoryFailed, stops_the_caller
from mmdb.messages import explain, show

#: Networks of torchvision's that have a second output for training unless told otherwise.
_SECOND_OUTPUT = ("googlenet", "inception_v3")
#: What would load code, weights or kernels from elsewhere, in a configuration.
_LOADING = ("auto_map", "quantization_config", "attn_implementation", "experts_implementation")

#: How names of options end that say how often a part of a network is repeated; and how often.
_REPEATING = (
    "layer", "layers", "depth", "depths", "blocks", "experts", "stages", "groups", "num_labels"
)  # fmt: skip
MOST_REPEATED, MOST_LABELS = 2000, 1_000_000


def timm(input_shape: tuple[int, ...], outputs: int, *, name: str, **options: object) -> nn.Module:
    """Return a network of timm's for pictures (C, H, W).

    Args:
        name: of its registry, such as "resnet18".
        options: of the network's class, such as drop_rate.
    Raises:
        FactoryFailed: the library or the network is not there, or an argument would load weights.
    """
    library = _library("timm")
    known = library.list_models() if not library.is_model(name) else [name]
    _check_name("timm", name, known)
    own = inspect.signature(library.create_model).parameters
    _check_options("timm", options, {*own} - {"kwargs"})
    channels, *sides = _picture(name, input_shape)
    given = {"in_chans": channels, "num_classes": outputs, **options}
    if library.get_pretrained_cfg(name, allow_unregistered=True).fixed_input_size:
        given.setdefault("img_size", tuple(sides))
    _check_classes(name, given["num_classes"], outputs)
    return cast("nn.Module", library.create_model(name, pretrained=False, **given))


def torchvision(
    input_shape: tuple[int, ...], outputs: int, *, name: str, **options: object
) -> nn.Module:
    """Return a network of torchvision's for pictures (3, H, W).

    Args:
        name: of its registry, such as "mobilenet_v3_small".
        options: of the network's class, such as dropout.
    Raises:
        FactoryFailed: the library or the network is not there, or an argument would load weights.
    """
    models = _library("torchvision").models
    _check_name("torchvision", name, models.list_models(module=models))
    _check_options("torchvision", options, {"weights", "weights_backbone", "progress"})
    _picture(name, input_shape)
    given = {"num_classes": outputs, **options}
    _check_classes(name, given["num_classes"], outputs)
    if name in _SECOND_OUTPUT:
        given = {"aux_logits": False, "init_weights": False, **given}
    return cast("nn.Module", models.get_model(name, weights=None, **given))


def transformers(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    name: str | None = None,
    config: Mapping[str, object] | None = None,
    model: str | None = None,
    causal: bool = False,
    **options: object,
) -> nn.Module:
    """Return a network of transformers' for tokens (T,) or for pictures (C, H, W).

    It returns logits; a class without any returns what it pools, or its last hidden states.

    Args:
        name: a model_type, such as "bert", whose configuration `options` change.
        config: what is in a config.json, in place of a name.
        model: the class, such as "BertModel"; None: the one that classifies rows.
        causal: the class that says of each token the next one, of as many as there are outputs. It
            sees no token after it, so that what fills rows up changes nothing.
    Raises:
        FactoryFailed: the library, the model_type or the class is not there, or the network has
            fewer tokens than outputs.
    """
    library = _library("transformers")
    made = _config(library, name, {**(config or {}), **options})
    found = _class_of(library, made, model, input_shape, causal=causal)
    causal = causal or found in _classes(library.MODEL_FOR_CAUSAL_LM_MAPPING, made)
    if hasattr(made, "num_labels") and "Classification" in found.__name__:
        made.num_labels = outputs
    if found.main_input_name == "pixel_values":
        _fit_picture(made, input_shape)
    elif causal:
        _fit_tokens(made, outputs, {*(config or {}), *options})
    elif getattr(made, "pad_token_id", None) is None:
        made.pad_token_id = 0
    return cast("nn.Module", _rows_of(found, causal)._from_config(made, dtype=torch.float32))


@cache
def _rows_of(found: type, causal: bool) -> Any:
    kind = _TokensOf if causal else _RowsOf
    return type(found.__name__, (kind, found), {"__module__": __name__})


class _RowsOf:
    """Makes a class of transformers' take a batch of rows, and return a tensor."""

    main_input_name: str
    config: Any
    is_masked = True  # whether what fills rows up is hidden

    @classmethod
    def is_custom_code(cls) -> bool:
        """Return whether the library's own names of tensors are not its: they are."""
        return False

    def forward(self, x: Tensor) -> Tensor:
        given = {self.main_input_name: x}
        if self.is_masked and self.main_input_name == "input_ids":
            given["attention_mask"] = (x != self.config.pad_token_id).long()
        found = super().forward(**given)  # type: ignore[misc]
        for key in ("logits", "pooler_output", "last_hidden_state"):
            value = getattr(found, key, None)
            if isinstance(value, Tensor | Proxy):  # the latter in a trace
                value = cast("Tensor", value)
                return value.flatten(1) if key == "pooler_output" else value
        raise TypeError(f"it returns {type(found).__name__}, which has no logits or states")


class _TokensOf(_RowsOf):
    """A class of the library that predicts the next token after each one."""

    is_masked = False

    def go_on(self, x: Tensor, past: Any) -> tuple[Tensor, Any]:
        """Return the outputs of tokens (n, T) that follow others, and what is known of all now.

        Args:
            past: what the call before has returned. None at the beginning, and of networks that
                keep nothing: they take all tokens each time.
        """
        own = super(_RowsOf, self).forward  # type: ignore[misc]
        keeps = "cache" in inspect.signature(own).parameters
        given = {"cache": past, "use_cache": True} if keeps else {}
        found = own(**{self.main_input_name: x}, **given)
        return found.logits, getattr(found, "cache", None)


def current_names(module: nn.Module, names: Iterable[str]) -> dict[str, str]:
    """Return what a network of transformers calls tensors of older names, by these.

    Files have the names of the library's version that wrote them, or older ones: it loads them all.
    Where tensors would have to be cut or joined as well, names stay.
    """
    if not isinstance(module, _RowsOf):
        return {}
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import WeightRenaming, apply_renamings, dot_natural_key
    except ImportError:  # before version 5 names were those of files
        return {}
    own = module.state_dict()
    found = get_model_conversion_mapping(cast("Any", module))
    renamings = [one for one in found if isinstance(one, WeightRenaming)]
    ordered = sorted((name for name in names if name not in own), key=dot_natural_key)
    renamed = {name: apply_renamings(name, renamings) for name in ordered}
    return {name: new for name, new in renamed.items() if new in own}


def _library(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except BaseException as error:  # torchvision raises RuntimeError beside another torch's build
        if stops_the_caller(error):
            raise
        raise FactoryFailed(
            f"the library {name} cannot be imported: {explain(error)}",
            hint="On each machine that trains: pip install 'mmdb-learn[pretrained]'",
        ) from error


def _check_name(library: str, name: object, known: list[str]) -> None:
    if not isinstance(name, str) or name not in known:
        close = get_close_matches(str(name), known, n=3)
        hint = f"Did you mean {' or '.join(close)}?" if close else f"Write {library}:NAME."
        raise FactoryFailed(f"{library} has no network {show(name)}", hint=hint)


def _check_options(library: str, options: Mapping[str, object], refused: set[str]) -> None:
    for key in options:
        if key in refused or key.startswith("pretrained"):
            raise FactoryFailed(
                f"argument {key} of {library} would load something",
                hint="Networks begin with random weights; import weights with import_model.",
            )


def _picture(name: str, input_shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(input_shape) != 3:
        raise FactoryFailed(
            f"{name} reads pictures (C, H, W), and rows have the shape {tuple(input_shape)}",
            hint="Use a column of pictures, or options.shape of the dataset.",
        )
    return input_shape


def _check_classes(name: str, given: object, outputs: int) -> None:
    if given != outputs:
        raise FactoryFailed(f"{name} has num_classes {show(given)}, and the label needs {outputs}")


def _config(library: Any, name: str | None, given: dict[str, object]) -> Any:
    """Return a configuration of the library's own class for its model_type."""
    kind = name or given.pop("model_type", None)
    given.pop("model_type", None)
    known = library.CONFIG_MAPPING
    if not isinstance(kind, str) or kind not in known:
        close = get_close_matches(str(kind), list(known), n=3)
        told = f"Did you mean {' or '.join(close)}?" if close else ""
        raise FactoryFailed(
            f"transformers has no model_type {show(kind)}",
            hint=f"{told} Code in a model's folder is never run.".strip(),
        )
    given = _harmless(given)
    _check_counts(given)
    return known[kind].from_dict(given)


def _check_counts(given: Mapping[str, object]) -> None:
    """Check that a network is built in bounded time, whatever a file says: layers are objects.

    Raises:
        FactoryFailed
    """
    for key, value in given.items():
        if isinstance(value, Mapping):
            _check_counts(value)
        counts = value if isinstance(value, list | tuple) else [value]
        most = MOST_LABELS if key.endswith("num_labels") else MOST_REPEATED
        repeats = key.endswith(_REPEATING) and any(
            isinstance(one, int | float) and one > most for one in counts
        )
        if repeats or len(counts) > most:
            raise FactoryFailed(
                f"config has {key} {show(value)}; {most:,} is the most",
                hint="No network that is known has so many.",
            )


def _harmless(given: Mapping[str, object]) -> dict[str, object]:
    """Return a configuration without what would load code, weights or kernels from elsewhere."""
    found: dict[str, object] = {}
    for key, value in given.items():
        if key.lstrip("_").startswith(_LOADING):
            continue
        found[key] = _harmless(value) if isinstance(value, Mapping) else value
    if "use_pretrained_backbone" in found:
        found["use_pretrained_backbone"] = False
    return found


def _class_of(
    library: Any, config: Any, model: str | None, input_shape: tuple[int, ...], *, causal: bool
) -> Any:
    if model is not None:
        found = getattr(library, model, None)
        if not inspect.isclass(found) or not issubclass(found, library.PreTrainedModel):
            raise FactoryFailed(f"transformers has no class {show(model)} of models")
        return found
    kind = "ImageClassification" if len(input_shape) == 3 else "SequenceClassification"
    kind = "CausalLM" if causal else kind
    name = "CAUSAL_LM" if causal else _upper(kind)
    classes = _classes(getattr(library, f"MODEL_FOR_{name}_MAPPING"), config)
    if not classes:
        raise FactoryFailed(
            f"transformers has no {kind} for model_type {config.model_type}",
            hint='Name a class of it: transformers:NAME(model="...").',
        )
    return classes[0]


def _classes(mapping: Any, config: Any) -> tuple[Any, ...]:
    """Return the classes that one of the library's mappings has for a configuration."""
    found = mapping[type(config)] if type(config) in mapping else ()
    return found if isinstance(found, tuple) else (found,)


def _upper(kind: str) -> str:
    return "".join(f"_{c}" if c.isupper() and n else c for n, c in enumerate(kind)).upper()


def _fit_tokens(config: Any, outputs: int, given: set[str]) -> None:
    """Have a configuration know as many tokens as there are outputs, unless it says how many."""
    if "vocab_size" not in given:
        config.vocab_size = outputs
    if config.vocab_size < outputs:
        raise FactoryFailed(
            f"{config.model_type} knows {config.vocab_size} tokens, and the dataset's tokenizer "
            f"has {outputs}",
            hint="Leave vocab_size out, or use the network's own tokenizer.",
        )
    config.use_cache = False  # of what generation goes on from
    if hasattr(config, "is_decoder"):
        config.is_decoder = True  # else some see the tokens that they are to predict


def _fit_picture(config: Any, input_shape: tuple[int, ...]) -> None:
    """Have a configuration read pictures of the rows' size, where it is of one size."""
    channels, height, width = _picture(config.model_type, input_shape)
    if getattr(config, "num_channels", channels) != channels:
        config.num_channels = channels
    if hasattr(config, "image_size"):
        config.image_size = height if height == width else [height, width]
