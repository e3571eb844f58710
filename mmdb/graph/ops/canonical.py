"""What an operation of torch is called and takes: one name and one form for one meaning.

op_graph.py lists the names. What torch's schema of an operation says is read once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias, cast

import torch
from torch._ops import OpOverload

Shape: TypeAlias = tuple[int, ...]
_Arguments: TypeAlias = dict[str, Any]
#: Takes the arguments, the shape of the first tensor among them and those of the outputs.
_Rule: TypeAlias = Callable[[_Arguments, Shape, Sequence[Shape]], _Arguments]

#: aten names of composite operations that are recorded as one.
WHOLE = frozenset(
    """
    linear matmul batch_norm layer_norm group_norm instance_norm rms_norm
    scaled_dot_product_attention softmax log_softmax einsum embedding_bag
    lstm gru rnn_tanh rnn_relu reshape flatten unflatten unbind tensor_split
    dropout feature_dropout alpha_dropout feature_alpha_dropout prelu grid_sampler
    adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d max_pool1d max_pool2d max_pool3d
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
    upsample_trilinear3d upsample_bicubic2d _upsample_nearest_exact2d
    pixel_shuffle pixel_unshuffle channel_shuffle repeat_interleave cosine_similarity
    """.split()
)
#: What changes no value: its result is its first argument.
NO_CHANGE = frozenset(
    """
    clone contiguous detach alias lift lift_fresh dropout feature_dropout alpha_dropout
    feature_alpha_dropout resolve_conj resolve_neg native_dropout requires_grad_ detach_
    """.split()
)

#: Makes a constant of a tensor's size or dtype.
ONLY_SIZES = frozenset(
    """
    empty_like zeros_like ones_like full_like rand_like randn_like randint_like
    new_empty new_zeros new_ones new_full new_empty_strided
    """.split()
)

_NAMES = {
    "mm": "matmul", "bmm": "matmul", "mv": "matmul", "dot": "matmul", "inner": "matmul",
    "_softmax": "softmax", "_log_softmax": "log_softmax",
    "native_batch_norm": "batch_norm", "cudnn_batch_norm": "batch_norm",
    "_native_batch_norm_legit": "batch_norm", "_native_batch_norm_legit_no_training": "batch_norm",
    "native_layer_norm": "layer_norm", "native_group_norm": "group_norm",
    "_fused_rms_norm": "rms_norm",
    "reshape": "view", "flatten": "view", "unflatten": "view", "_unsafe_view": "view",
    "_reshape_alias": "view",
    "transpose": "permute", "t": "permute",
    "split": "split_with_sizes", "unsafe_split": "split_with_sizes", "tensor_split":
    "split_with_sizes", "unsafe_split_with_sizes": "split_with_sizes",
    "_convolution": "convolution", "convolution_overrideable": "convolution",
    "mkldnn_convolution": "convolution",
    "_embedding_bag": "embedding_bag", "_embedding_bag_forward_only": "embedding_bag",
    "_adaptive_avg_pool2d": "adaptive_avg_pool2d", "_adaptive_avg_pool3d": "adaptive_avg_pool3d",
    "max_pool2d_with_indices": "max_pool2d", "max_pool3d_with_indices": "max_pool3d",
    "_prelu_kernel": "prelu",
}  # fmt: skip


def name_of(schema_name: str) -> str:
    """Return the op's name of an aten schema: without namespace, as if it wrote nowhere."""
    name = schema_name.removeprefix("aten::")
    if name.endswith("_") and not name.endswith("__"):
        name = name[:-1]
    return _NAMES.get(name, name)


def canonical(
    schema_name: str, arguments: Mapping[str, object], first: Shape, outputs: Sequence[Shape]
) -> _Arguments:
    """Return the arguments in the form that belongs to the op's name.

    Args:
        first: the shape of the first tensor among the arguments.
        outputs: the shapes of the outputs.
    """
    found = dict(arguments)
    aten = schema_name.removeprefix("aten::").rstrip("_")
    rule = _RULES.get(name_of(schema_name))
    if aten in ("t", "transpose"):
        rule = _permute
    return found if rule is None else rule(found, first, outputs)


def _view(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    return {"self": found["self"], "size": outputs[0]}


def _permute(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    n = len(first)
    if "dims" in found:
        dims = [dim % n for dim in found["dims"]]
    else:
        dims = list(range(n))
        one, other = found.get("dim0", 0), found.get("dim1", -1)
        if n > 1:
            dims[one % n], dims[other % n] = dims[other % n], dims[one % n]
    return {"self": found["self"], "dims": tuple(dims)}


def _split(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    dim = found.get("dim", 0) % len(first)
    sizes = tuple(shape[dim] for shape in outputs)
    return {"self": found["self"], "split_sizes": sizes, "dim": dim}


def _slice(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    dim = found["dim"] % len(first)
    bounds = slice(found["start"], found["end"], found["step"])
    start, end, step = bounds.indices(first[dim])
    return {**found, "dim": dim, "start": start, "end": max(start, end), "step": step}


def _select(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    dim = found["dim"] % len(first)
    return {**found, "dim": dim, "index": found["index"] % max(1, first[dim])}


def _squeeze(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    dims = found.get("dim", tuple(range(len(first))))
    asked = {dim % len(first) for dim in (dims if isinstance(dims, tuple) else (dims,)) if first}
    kept = tuple(sorted(dim for dim in asked if first[dim] == 1))
    return {"self": found["self"], "dims": kept}


def _unsqueeze(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    return {**found, "dim": found["dim"] % len(outputs[0])}


def _dim_of_first(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    return {**found, "dim": found.get("dim", 0) % max(1, len(first))}


def _dim_of_output(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    return {**found, "dim": found.get("dim", 0) % max(1, len(outputs[0]))}


def _matmul(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    tensors = tuple(found.values())
    return {"self": tensors[0], "other": tensors[1]}


def _batch_norm(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    return {
        "input": found["input"],
        "weight": found.get("weight"),
        "bias": found.get("bias"),
        "running_mean": found.get("running_mean"),
        "running_var": found.get("running_var"),
        "training": bool(found.get("training", found.get("use_input_stats", False))),
        "momentum": found.get("momentum", 0.1),
        "eps": found.get("eps", found.get("epsilon", 1e-5)),
    }


def _only(*names: str) -> _Rule:
    """Return a rule that keeps the arguments of these names."""

    def rule(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
        return {name: found.get(name) for name in names}

    return rule


def _group_norm(found: _Arguments, first: Shape, outputs: Sequence[Shape]) -> _Arguments:
    groups = found.get("num_groups", found.get("group"))
    found = {"input": found["input"], "num_groups": groups, **found}
    return cast("_Arguments", {k: found.get(k) for k in ("input", "num_groups", *_AFFINE)})


_AFFINE = ("weight", "bias", "eps")
_CONVOLUTION = (
    "input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding",
    "groups",
)  # fmt: skip
_RULES: Mapping[str, _Rule] = {
    "view": _view,
    "view_as": _view,
    "permute": _permute,
    "expand": _view,
    "split_with_sizes": _split,
    "slice": _slice,
    "select": _select,
    "squeeze": _squeeze,
    "unsqueeze": _unsqueeze,
    "unbind": _dim_of_first,
    "softmax": _dim_of_first,
    "log_softmax": _dim_of_first,
    "cat": _dim_of_output,
    "stack": _dim_of_output,
    "matmul": _matmul,
    "batch_norm": _batch_norm,
    "layer_norm": _only("input", "normalized_shape", *_AFFINE),
    "group_norm": _group_norm,
    "convolution": _only(*_CONVOLUTION),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """An operation's schema.

    Attributes:
        name: aten's, without overload: "aten::add_".
        arguments: name and default, in order.
        writes: the arguments that it writes into.
        decomposes: it stands for others, and is not recorded as one.
        keeps_values: its result holds the values of its first argument.
        only_sizes: its result depends on sizes, not on values.
        takes_device: it has an argument "device".
        has_new_results: its results share no memory with its arguments, or are the first of them,
            which it writes into.
        is_random: it draws from a generator.
        changes_view: it changes the shape of its argument in place.
    """

    name: str
    arguments: tuple[tuple[str, object], ...]
    writes: tuple[str, ...]
    decomposes: bool
    keeps_values: bool
    only_sizes: bool
    takes_device: bool
    has_new_results: bool
    is_random: bool
    changes_view: bool


@lru_cache(maxsize=4096)
def schema_of(func: OpOverload) -> Schema:
    """Return the schema of an operation."""
    found = func._schema
    plain = found.name.removeprefix("aten::").rstrip("_")
    arguments = tuple((arg.name, arg.default_value) for arg in found.arguments)
    writes = (a.name for a in found.arguments if a.alias_info and a.alias_info.is_write)
    return Schema(
        name=found.name,
        arguments=arguments,
        writes=tuple(writes),
        decomposes=plain not in WHOLE and func._can_decompose(),
        keeps_values=plain in NO_CHANGE,
        only_sizes=plain in ONLY_SIZES,
        takes_device=any(name == "device" for name, _ in arguments),
        has_new_results=_has_new_results(func),
        is_random=torch.Tag.nondeterministic_seeded in func.tags,
        changes_view=torch.Tag.inplace_view in func.tags,
    )


def _has_new_results(func: OpOverload) -> bool:
    found = func._schema
    if all(one.alias_info is None for one in (*found.returns, *found.arguments)):
        return True
    written = [one.alias_info is not None and one.alias_info.is_write for one in found.arguments]
    in_place = found.name.endswith("_") and torch.Tag.inplace_view not in func.tags
    return in_place and sum(written) == written[0] == len(found.returns)
