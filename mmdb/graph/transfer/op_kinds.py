"""What kinds of operations do to elements, by the names that `OpGraph` gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: f(c x) = c f(x) for every number c.
LINEAR: Final = _names("neg _to_copy to type_as real conj positive")
#: f(c x) = c f(x) for c >= 0.
HOMOGENEOUS: Final = _names("relu leaky_relu abs rrelu rrelu_with_noise")
#: Neither, but f(0) = 0.
ODD: Final = _names(
    """
    gelu silu tanh elu selu celu mish hardswish sin erf softsign sqrt square expm1 log1p sign
    hardshrink softshrink tan sinh asinh atan nan_to_num trunc floor ceil round hardtanh prelu
    """
)
#: Functions of one tensor, element by element, whatever f(0) is.
OTHER: Final = _names(
    """
    sigmoid exp exp2 log log2 log10 rsqrt reciprocal pow cos acos asin cosh acosh atanh erfc erfinv
    clamp clamp_min clamp_max hardsigmoid softplus log_sigmoid log_sigmoid_forward threshold
    isnan isinf isfinite logical_not bitwise_not lgamma digamma logit
    """
)
#: Functions of several tensors, element by element, broadcast.
MIXED: Final = _names(
    """
    add sub rsub mul div floor_divide true_divide maximum minimum fmod remainder eq ne lt le gt ge
    logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor where masked_fill addcmul
    addcdiv lerp atan2 copysign xlogy fmax fmin hypot __and__ __or__ __xor__ heaviside
    """
)
ELEMENTWISE: Final = LINEAR | HOMOGENEOUS | ODD | OTHER | MIXED

#: The order of elements stays; sizes of axes change.
REARRANGING: Final = _names("view permute expand unsqueeze squeeze")
#: A part of a tensor, or parts put together.
CUTTING: Final = _names("slice select split_with_sizes unbind narrow")
JOINING: Final = _names("cat stack")

#: (n, channels, ...) -> (n, channels, ...): each channel by itself.
_POOLS = """
    max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d
    adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d fractional_max_pool2d lp_pool1d lp_pool2d
"""
_RESIZES = """
    upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d
    upsample_bicubic2d upsample_trilinear3d _upsample_nearest_exact1d _upsample_nearest_exact2d
    _upsample_bilinear2d_aa _upsample_bicubic2d_aa reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d grid_sampler
"""
PER_CHANNEL: Final = _names(_POOLS + _RESIZES)

#: Same shape, near to what they read: activations that let large values pass, and pools.
NEARLY_IDLE: Final = _names("relu leaky_relu gelu silu elu selu celu mish hardswish hardtanh") | (
    _names(_POOLS)
)

#: Infinite, or no number, for some finite numbers.
UNBOUNDED: Final = _names("log log2 log10 rsqrt reciprocal div pow true_divide xlogy logit erfinv")
#: Another result each time.
RANDOM: Final = _names(
    """
    dropout native_dropout alpha_dropout feature_dropout bernoulli multinomial normal uniform
    rand_like randn_like randint_like rrelu_with_noise fractional_max_pool2d
    """
)

#: About max(x, 0).
CLIPPING: Final = _names("relu hardtanh gelu silu hardswish mish leaky_relu")

#: Results do not depend on how often a value occurs among what is reduced.
EXTREMES: Final = _names("amax amin max min any all")
REDUCTIONS: Final = EXTREMES | _names(
    """
    mean sum var std var_mean std_mean norm linalg_vector_norm logsumexp prod argmax argmin nansum
    count_nonzero median
    """
)
#: Same shape, but elements along `dim` have to do with each other, or with their places.
ALONG: Final = _names(
    "softmax log_softmax _safe_softmax cumsum cumprod flip roll sort argsort cummax cummin"
)
#: Constant along every axis.
FILLS: Final = _names(
    """
    zeros ones full empty zeros_like ones_like full_like empty_like new_zeros new_ones new_full
    new_empty fill zero scalar_tensor rand_like randn_like bernoulli
    """
)

STANDARDISING: Final = _names("batch_norm layer_norm group_norm instance_norm rms_norm")
RECURRENT: Final = _names("lstm gru rnn_tanh rnn_relu")
#: Operations with a weight, which a child may have and its parent not.
WEIGHTED: Final = STANDARDISING | _names("linear convolution embedding addmm")

#: A result is zero where the first argument is, but see `keeps_zero`.
KEEPING_ZERO: Final = (
    LINEAR | HOMOGENEOUS | ODD | REARRANGING | CUTTING | PER_CHANNEL | _names("mean sum")
)
#: A result is not negative.
NOT_NEGATIVE: Final = _names("relu abs sigmoid softmax square exp hardsigmoid _safe_softmax")
#: Not negative where the arguments are not.
KEEPING_SIGN: Final = (
    REARRANGING | CUTTING | JOINING | _names(_POOLS) | _names("add mul mean sum _to_copy")
)

#: Arguments that say nothing of what is computed, or that spaces and numbers are compared for.
SILENT: Final = _names(
    """
    dtype device layout pin_memory memory_format generator size split_sizes momentum
    normalized_shape groups num_groups dropout_p scale_grad_by_freq sparse
    non_blocking copy implicit cudnn_enabled train dropout N C HxW group hidden_size num_layers
    """
)
#: The same, of some operations; a kernel's growth makes up for its padding and dilation.
SILENT_IN: Final[Mapping[str, frozenset[str]]] = {
    "convolution": _names("padding dilation"),
    "scaled_dot_product_attention": _names("scale"),
    "embedding": _names("padding_idx"),
    "mul": _names("other"),
    "div": _names("other"),
}
