"""Every operation that has a rule, against sums written out by hand; a float has 4 bytes."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from mmdb.plan.step.elementwise_rules import UNARY
from mmdb.plan.step.flow_counts import RULES
from tests.unit.plan.work.by_hand import Sums, counted, given, indices, mask, p

NONE = Sums(0, 0, 0)


class Case(NamedTuple):
    op: str
    out: Any
    arguments: dict[str, Any]
    forward: Sums
    backward: Sums
    kept: int  # bytes between forward and backward, parameters included


def case(op: str, out: Any, forward: Any, backward: Any, kept: int, **arguments: Any) -> Case:
    return Case(op, out, arguments, Sums(*forward), Sums(*backward), kept)


CONV = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "output_padding": (0, 0)}
#: (2, 3, 6, 6) by (4, 3, 3, 3): 4 channels of 4 x 4; 288 + 144 + 4 floats in.
PLAIN = {"input": p(2, 3, 6, 6), "weight": p(4, 3, 3, 3), "bias": p(4), "transposed": False}
CASES = [
    # (5, 3) by (3, 4): 2 x 5 x 4 x 3. Backward: twice that, and a sum of 20 for the bias.
    case("linear", (5, 4), (120, (15 + 12 + 4) * 4, 80), (260, (20 + 12 + 20 + 15 + 20) * 4,
         (15 + 12 + 4) * 4), (15 + 12) * 4, input=p(5, 3), weight=p(4, 3), bias=p(4)),
    case("linear", (5, 4), (120, 108, 80), (120, (20 + 15) * 4, 48), (15 + 12) * 4,
         input=given(5, 3), weight=p(4, 3), bias=None),
    # Six products of (2, 4) by (4, 5).
    case("matmul", (6, 2, 5), (480, (48 + 120) * 4, 240), (960, (60 + 120 + 60 + 48) * 4,
         (48 + 120) * 4), (48 + 120) * 4, self=p(6, 2, 4), other=p(6, 4, 5)),
    # The leading axis of the first factor is rows.
    case("matmul", (6, 2, 5), (480, (48 + 20) * 4, 240), (960, (60 + 20 + 60 + 48) * 4,
         (48 + 20) * 4), (48 + 20) * 4, self=p(6, 2, 4), other=p(4, 5)),
    case("addmm", (5, 4), (120, (4 + 15 + 12) * 4, 80), (260, (20 + 12 + 20 + 15 + 20) * 4,
         (15 + 12 + 4) * 4), 108, self=p(4), mat1=p(5, 3), mat2=p(3, 4), beta=1, alpha=1),
    case("baddbmm", (6, 2, 5), (480, (60 + 48 + 120) * 4, 240), (960, (60 + 120 + 60 + 48) * 4,
         (48 + 120) * 4), 168 * 4, self=p(6, 2, 5), batch1=p(6, 2, 4), batch2=p(6, 4, 5)),
    case("_grouped_mm", (8, 5), (320, (32 + 60 + 0) * 4, 160), (640, (40 + 60 + 40 + 32) * 4,
         92 * 4), 92 * 4, self=p(8, 4), mat2=p(3, 4, 5), offs=None),
    case("einsum", (2, 3), (2 * 2 * 3 * 4, (8 + 12) * 4, 24), (96, (12 + 6 + 8 + 6) * 4,
         20 * 4), 20 * 4, equation="ik,kj->ij", tensors=[p(2, 4), p(4, 3)]),
    # 2 x 16 places, 4 channels, 27 weights each.
    case("convolution", (2, 4, 4, 4), (2 * 32 * 4 * 27, (216 + 108 + 4) * 4, 512),
         (4 * 32 * 4 * 27 + 128, (128 + 108 + 128 + 216 + 128) * 4, (216 + 108 + 4) * 4),
         (216 + 108) * 4, **PLAIN, groups=1, **CONV),
    # Two groups of (1 of 2) channels: half of the work of one group.
    case("convolution", (2, 4, 4, 4), (2 * 32 * 4 * 9, (144 + 36) * 4, 512),
         (4 * 32 * 4 * 9, (128 + 36 + 128 + 144) * 4, 180 * 4), 180 * 4, input=p(2, 2, 6, 6),
         weight=p(4, 1, 3, 3), bias=None, transposed=False, groups=2, **CONV),
    # Transposed: each of 2 x 4 places of the input goes through 3 x 5 x 9 weights.
    case("convolution", (2, 5, 4, 4), (2 * 8 * 5 * 27, (24 + 135) * 4, 640),
         (4 * 8 * 5 * 27, (160 + 135 + 160 + 24) * 4, 159 * 4), 159 * 4, input=p(2, 3, 2, 2),
         weight=p(3, 5, 3, 3), bias=None, transposed=True, groups=1, **CONV),
    # Scores 2 x 3 x (4 x 5), width 8: 2 x 120 x (8 + 8); backward two and a half times that.
    case("scaled_dot_product_attention", (2, 3, 4, 8), (3840, (192 + 240 + 240) * 4, 768),
         (9600, (672 + 2 * 192) * 4, 672 * 4), (672 + 192 + 24) * 4,
         query=p(2, 3, 4, 8), key=p(2, 3, 5, 8), value=p(2, 3, 5, 8), attn_mask=None,
         dropout_p=0.0),
    # With dropout in steps: scale 192 + 240, scores 1920, softmax 120, drawn 120, dropped 120,
    # values 1920.
    case("scaled_dot_product_attention", (2, 3, 4, 8), (4632, 4 * (192 + 240 + 432 + 120 + 0 + 240
         + 360), 4 * (192 + 240 + 120 + 120 + 120 + 120 + 192)),
         (4 * 1920 + 120 + 480 + 432, 4 * (432 + 312 + 240 + 240 + 360 + 312 + 432),
          4 * (120 + 240 + 120 + 120 + 192 + 240 + 432)), 4 * (192 + 240 + 240 + 3 * 120),
         query=p(2, 3, 4, 8), key=p(2, 3, 5, 8), value=p(2, 3, 5, 8), attn_mask=None,
         dropout_p=0.1),
    # 3 steps of 2 rows: 24 cells, 16 rows of weights by 5 + 4; the gates' functions are 5 a cell.
    case("lstm", [(2, 3, 4), (1, 2, 4), (1, 2, 4)],
         (2 * 6 * 16 * 9 + 5 * 24, 4 * (6 * (5 + 32) + 3 * 64 + 80) + 4 * 4 * 24,
          4 * 96 + 4 * 16 * 24),
         (4 * 6 * 16 * 9 + 5 * 24, 8 * (6 * 37 + 192 + 80) + 384,
          4 * (6 * 37 + 80 + 64) + 4 * 16 * 24), 4 * (16 * 24 + 30) + 6 * 4096 + 4 * 2 * 4 * 4,
         input=p(2, 3, 5), hx=None, params=[p(16, 5), p(16, 4)], batch_first=True),
    case("gru", [(2, 3, 4), (1, 2, 4)],
         (2 * 6 * 12 * 9 + 3 * 24, 4 * (6 * (5 + 24) + 3 * 48 + 60) + 4 * 3 * 24,
          4 * 72 + 4 * 7 * 24),
         (4 * 6 * 12 * 9 + 3 * 24, 8 * (6 * 29 + 144 + 60) + 288,
          4 * (6 * 29 + 60 + 48) + 4 * 7 * 24), 4 * (7 * 24 + 30),
         input=p(2, 3, 5), hx=None, params=[p(12, 5), p(12, 4)], batch_first=True),
    *(
        case(op, [(2, 3, 4), (1, 2, 4)],
             (2 * 6 * 4 * 9 + 24, 4 * (6 * (5 + 8) + 3 * 16 + 20) + 4 * 24, 4 * 24 + 4 * 24),
             (4 * 6 * 4 * 9 + 24, 8 * (6 * 13 + 48 + 20) + 96,
              4 * (6 * 13 + 20 + 16) + 4 * 24), 4 * (24 + 30),
             input=p(2, 3, 5), hx=None, params=[p(4, 5), p(4, 4)], batch_first=True)
        for op in ("rnn_tanh", "rnn_relu")
    ),
    # Functions of 6 elements.
    *(
        case(op, (2, 3), (6, 24, 24),
             NONE if op in ("floor", "ceil", "round", "trunc", "sign")
             else (6, 48 if kept else 24, 24), 24 if kept else 0, self=p(2, 3))
        for op, (_, kept, _) in UNARY.items()
    ),
    *(
        case(op, (2, 3), (30, 48, 24), (24, 48, 24), 24, self=p(2, 3), dim=1)
        for op in ("softmax", "log_softmax")
    ),
    # A row of 3 is added to two: its gradient is a sum of 6.
    *(
        case(op, (2, 3), (6, 36, 24), (6, 24, 12), 0, self=p(2, 3), other=p(3))
        for op in ("add", "sub", "rsub", "__radd__")
    ),
    case("add_n", (2, 3), (6, 48, 24), (0, 0, 0), 0, inputs=[p(2, 3), p(2, 3)]),
    *(
        case(op, (2, 3), (6, 48, 24), (12, 96, 48), 48, self=p(2, 3), other=p(2, 3))
        for op in ("mul", "div", "true_divide", "maximum", "minimum", "atan2", "fmod")
    ),
    case("mul", (2, 3), (6, 36, 24), (6 + 6 + 6, 36 + 48 + 24, 24 + 24 + 12), 36,
         self=p(2, 3), other=p(3)),
    case("mul", (2, 3), (6, 24, 24), (6, 24, 24), 0, self=p(2, 3), other=2.0),
    case("pow", (2, 3), (6, 24, 24), (6, 24, 24), 24, self=p(2, 3), exponent=2),
    case("where", (2, 3), (6, 6 + 48, 24), (12, 60, 48), 6, condition=mask(2, 3),
         self=p(2, 3), other=p(2, 3)),
    case("masked_fill", (2, 3), (6, 6 + 24, 24), (6, 30, 24), 6, self=p(2, 3),
         mask=mask(2, 3), value=0.0),
    *(
        case(op, (2, 3), (12, 72, 24), (18, 3 * 72, 72), 72, self=p(2, 3), tensor1=p(2, 3),
             tensor2=p(2, 3))
        for op in ("addcmul", "addcdiv", "lerp")
    ),
    *(
        case(op, (2, 3), (6, 48, 6 if op in ("eq", "ne", "lt", "le", "gt", "ge", "logical_and",
             "logical_or", "logical_not", "logical_xor", "isnan", "isinf", "isfinite") else 24),
             NONE, 0, self=given(2, 3), other=given(2, 3))
        for op in """eq ne lt le gt ge logical_and logical_or logical_not logical_xor isnan isinf
        isfinite bitwise_and bitwise_or bitwise_not bitwise_xor floor_divide remainder tril triu
        bitwise_left_shift bitwise_right_shift __and__ __or__ __lshift__ __rshift__""".split()
    ),
    case("one_hot", (2, 5), (10, 16, 80), NONE, 0, self=indices(2)),
    # Noise is drawn, scaled and taken; 6 floats of it are kept.
    case("bernoulli", (2, 3), (18, 24 + 48, 72), (6, 48, 24), 24, self=p(2, 3), p=0.1),
    case("prelu", (2, 3), (6, 28, 24), (12 + 6, 52 + 24, 48 + 4), 28, self=p(2, 3), weight=p(1)),
    case("glu", (2, 3), (12, 48, 24), (24, 72, 48), 48, self=p(2, 6), dim=1),
    # 24 elements, 3 channels: 6 operations each, in two passes; mean and deviation are kept.
    case("batch_norm", (2, 3, 4), (144, 2 * 96 + 24, 96 + 24), (216, 4 * 96 + 24 + 24, 96 + 24),
         96 + 12 + 24, input=p(2, 3, 4), weight=p(3), bias=p(3), training=True),
    case("batch_norm", (2, 3, 4), (48, 96 + 24, 96), (96, 2 * 96 + 24, 96 + 24), 96 + 12,
         input=p(2, 3, 4), weight=p(3), bias=p(3), training=False),
    # 6 rows of 4.
    case("layer_norm", (2, 3, 4), (192, 192 + 32, 96 + 48), (264, 4 * 96 + 32 + 48, 96 + 32),
         96 + 16 + 48, input=p(2, 3, 4), normalized_shape=(4,), weight=p(4), bias=p(4)),
    case("group_norm", (2, 4, 3), (192, 192 + 32, 96 + 32), (264, 384 + 32 + 32, 96 + 32),
         96 + 16 + 32, input=p(2, 4, 3), num_groups=2, weight=p(4), bias=p(4)),
    case("instance_norm", (2, 4, 3), (144, 192, 96 + 64), (264, 384 + 64, 96), 96 + 64,
         input=p(2, 4, 3), weight=None, bias=None),
    case("rms_norm", (2, 3, 4), (96, 192 + 16, 96 + 24), (192, 384 + 16 + 24, 96 + 16),
         96 + 16 + 24, input=p(2, 3, 4), normalized_shape=(4,), weight=p(4)),
    *(case(op, (2,), (6, 24, 8), (0, 0, 0), 0, self=p(2, 3)) for op in ("sum", "trace")),
    case("mean", (2,), (6, 24, 8), (6, 8, 24), 0, self=p(2, 3), dim=(1,)),
    *(
        case(op, (2,), (flops * 6, 24, 8), (12, 24 + (16 if both else 8), 24),
             32 if both else 24, self=p(2, 3))
        for op, flops, both in (
            ("var", 4, False), ("std", 4, True), ("norm", 2, True), ("prod", 1, True),
            ("linalg_vector_norm", 2, True), ("logsumexp", 2, True), ("amax", 1, True),
            ("amin", 1, True), ("cumprod", 1, True),
        )
    ),
    *(
        case(op, [(2,), (2,)], (24, 24, 16), (12, 24 + (16 if both else 8), 24),
             32 if both else 24, self=p(2, 3))
        for op, both in (("var_mean", False), ("std_mean", True))
    ),
    *(
        case(op, (), (flops * 12, 48, 4), (12, 48 + (8 if both else 4), 24),
             52 if both else 48, self=p(2, 3), target=given(2, 3))
        for op, flops, both in (
            ("mse_loss", 3, False), ("l1_loss", 2, False), ("smooth_l1_loss", 4, False),
            ("huber_loss", 4, False), ("binary_cross_entropy", 6, False), ("dist", 3, True),
            ("binary_cross_entropy_with_logits", 8, False), ("kl_div", 4, False),
            ("cosine_similarity", 6, True),
        )
    ),
    *(
        case(op, [(2,), (2,)], (6, 24, 8 + (16 if op in
             ("max", "min", "topk", "sort", "kthvalue", "median") else 8)),
             (0, 8 + (16 if op in ("max", "min", "topk", "sort", "kthvalue", "median") else 8),
              24 + 8),
             16 if op in ("max", "min", "topk", "sort", "kthvalue", "median") else 8,
             self=p(2, 3), dim=1)
        for op in ("max", "min", "topk", "sort", "kthvalue", "median", "mode", "aminmax")
    ),
    *(
        case(op, (2,), (6, 24, {"any": 2, "all": 2, "count_nonzero": 8}.get(op, 16)), NONE, 0,
             self=given(2, 3))
        for op in ("argmax", "argmin", "argsort", "any", "all", "nonzero", "count_nonzero")
    ),
    *(
        case(op, (2, 3), (6, 24, 24), (6, 48 + 24, 48 + 24), 0, self=p(2, 3), dim=1)
        for op in ("cumsum", "logcumsumexp")
    ),
    *(
        case(op, (), (2, 24 + 16, 4), (2, 40, 24), 40, self=p(2, 3), target=indices(2))
        for op in ("nll_loss", "nll_loss_nd", "nll_loss2d", "nll_loss_forward")
    ),
    # Windows of 2 along each axis.
    *(
        case(f"{kind}_pool{axes}d", (1, 2, *(2,) * axes),
             (2 * 2**axes * 2**axes, 4 * 2 * 4**axes,
              4 * 2 * 2**axes + (8 * 2 * 2**axes if kind == "max" else 0)),
             (2 * 2**axes * (1 if kind == "max" else 2**axes),
              2 * 2**axes * (4 + (8 if kind == "max" else 4)), 8 * 4**axes + 8 * 2**axes),
             8 * 4**axes + (16 * 2**axes if kind == "max" else 0),
             self=p(1, 2, *(4,) * axes), kernel_size=(2,) * axes)
        for kind in ("max", "avg")
        for axes in (1, 2, 3)
    ),
    *(
        case(f"adaptive_{kind}_pool{axes}d", (1, 2, *(2,) * axes),
             (2 * 4**axes, 8 * 4**axes, 8 * 2**axes + (16 * 2**axes if kind == "max" else 0)),
             ((2 * 2**axes if kind == "max" else 2 * 4**axes),
              2 * 2**axes * (4 + (8 if kind == "max" else 4)), 8 * 4**axes + 8 * 2**axes),
             8 * 4**axes + (16 * 2**axes if kind == "max" else 0),
             self=p(1, 2, *(4,) * axes), output_size=(2,) * axes)
        for kind in ("max", "avg")
        for axes in (1, 2, 3)
    ),
    # 8 results, each of `mixed` of the argument's 4 elements, by `each` operations.
    *(
        case(op, (1, 8), (each * 8, mixed * 32, 32), ((each + mixed) * 8, 32, 16 + mixed * 32), 0,
             self=p(1, 4))
        for op, mixed, each in (
            ("upsample_nearest1d", 1, 0), ("upsample_nearest2d", 1, 0),
            ("upsample_nearest3d", 1, 0), ("_upsample_nearest_exact1d", 1, 0),
            ("_upsample_nearest_exact2d", 1, 0), ("_upsample_nearest_exact3d", 1, 0),
            ("upsample_linear1d", 2, 3), ("upsample_bilinear2d", 4, 8),
            ("_upsample_bilinear2d_aa", 4, 8), ("upsample_trilinear3d", 8, 18),
            ("upsample_bicubic2d", 16, 40), ("_upsample_bicubic2d_aa", 16, 40),
        )
    ),
    *(
        case(op, (1, 1, 2, 2), (80, 64, 16), (96, 16, 64 + 64), 64 + 32,
             input=p(1, 1, 4, 4), grid=given(1, 2, 2, 2))
        for op in ("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")
    ),
    # Views move nothing.
    *(
        case(op, (3, 2), NONE, NONE, 0, self=p(2, 3), **more)
        for op, more in (
            ("view", {"size": (3, 2)}), ("permute", {"dims": (1, 0)}), ("view_as_real", {}),
            ("view_as_complex", {}), ("real", {}), ("imag", {}), ("diagonal", {}),
            ("as_strided", {}), ("unfold_view", {}), ("alias", {}),
        )
    ),
    case("squeeze", (3,), NONE, NONE, 0, self=p(1, 3), dims=(0,)),
    case("unsqueeze", (1, 3), NONE, NONE, 0, self=p(3), dim=0),
    case("expand", (2, 3), NONE, (6, 24, 12), 0, self=p(1, 3), size=(2, 3)),
    # The gradient of a part: zeros of the whole, and a copy.
    case("slice", (1, 3), NONE, (0, 12, 24 + 12), 0, self=p(2, 3), dim=0, start=0, end=1, step=1),
    case("select", (3,), NONE, (0, 12, 24 + 12), 0, self=p(2, 3), dim=0, index=0),
    case("narrow", (1, 3), NONE, (0, 12, 24 + 12), 0, self=p(2, 3), dim=0, start=0, length=1),
    *(
        case(op, [(1, 3), (1, 3)], NONE, (0, 24, 24), 0, self=p(2, 3), dim=0)
        for op in ("split_with_sizes", "chunk")
    ),
    case("unbind", [(3,), (3,)], NONE, (0, 24, 24), 0, self=p(2, 3), dim=0),
    *(
        case(op, (2, 6), (0, 24, 48), (0, 48, 24), 0, self=p(2, 3), pad=(0, 3))
        for op in """_to_copy to roll flip repeat repeat_interleave pixel_shuffle pixel_unshuffle
        channel_shuffle constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d
        replication_pad1d replication_pad2d replication_pad3d rot90 unfold im2col col2im diag_embed
        tile""".split()
    ),
    case("constant_pad_nd", (2, 3), (0, 24, 24), NONE, 0, self=p(2, 3), pad=(0, 0)),
    *(
        case(op, (4, 3), (0, 48, 48), NONE, 0, tensors=[p(2, 3), p(2, 3)], dim=0)
        for op in ("cat", "stack")
    ),
    # Two rows of three, by index: the gradient is zeros of all, and additions.
    *(
        case(op, (2, 3), (0, 24 + 16, 24), (6, 48 + 16, 60 + 24), 16, self=p(5, 3),
             index=indices(2))
        for op in ("index", "index_select", "gather", "take", "take_along_dim", "masked_select")
    ),
    *(
        case(op, (2, 3), (0, 24 + 12, 24 + 12), (0, 48, 24 + 12), 0, self=p(2, 3), src=p(1, 3))
        for op in """slice_scatter select_scatter as_strided_scatter index_put scatter scatter_add
        index_add masked_scatter index_copy scatter_reduce index_fill""".split()
    ),
    *(
        case(op, (2, 3), (0, 0, 24), NONE, 0, size=(2, 3))
        for op in """zeros ones full arange eye zeros_like ones_like full_like empty_like new_zeros
        new_ones fill zero rand randn rand_like randn_like randint uniform normal linspace
        scalar_tensor""".split()
    ),
    # 4 rows of a table of (10, 3).
    case("embedding", (4, 3), (0, 48 + 32, 48), (12, 48 + 48 + 32, 120 + 48), 32,
         weight=p(10, 3), indices=indices(4)),
    case("embedding_bag", (2, 3), (12, 48 + 32, 24), (12, 24 + 48 + 32, 120 + 48), 32 + 16,
         weight=p(10, 3), indices=indices(4), offsets=indices(2)),
]  # fmt: skip


@pytest.mark.parametrize("one", CASES, ids=[f"{n}-{one.op}" for n, one in enumerate(CASES)])
def test_what_an_operation_does(one: Case) -> None:
    found = counted(one.op, one.out, **one.arguments)
    assert found.forward == one.forward
    assert found.backward == one.backward
    assert found.kept == one.kept


def test_every_rule_is_tested() -> None:
    assert {one.op for one in CASES} == set(RULES)


def test_an_unknown_operation_costs_its_bytes_both_ways() -> None:
    found = counted("a_new_one", (2, 3), self=p(2, 3), other=p(2, 3))
    assert found.forward == Sums(0, 48, 24)
    assert found.backward == Sums(0, 48 + 48, 48)
    assert found.kept == 72
    assert {part.kind for part in found.counted.forward} == {"unknown"}


def test_a_view_that_no_strides_describe_is_a_copy() -> None:
    turned = counted("permute", (3, 2), self=p(2, 3), dims=(1, 0))
    assert turned.tensors.strides(turned.tensors.flow.outputs[0]) == (1, 3)
