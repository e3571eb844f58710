"""Layers of rows of tokens, of several networks at once: (members, n, T, D)."""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import nn
from torch.nn import functional

from mmdb.graph import factories, vocabulary
from mmdb.train.stack.flow import Flow, Form, Layer, Step, by_numbers, fill_rows
from mmdb.train.stack.layers import kept, product


def attention(layer: Layer) -> Step:
    """Return the step of attention of tokens to each other."""
    first = cast(nn.MultiheadAttention, layer.modules[0])
    layer.needs(first.batch_first and first._qkv_same_embed_dim and first.bias_k is None)
    layer.needs(not first.add_zero_attn)
    heads, width = first.num_heads, first.embed_dim
    shares = [cast(nn.MultiheadAttention, module).dropout for module in layer.modules]
    weight = layer.tensor("in_proj_weight")
    bias = None if first.in_proj_bias is None else layer.tensor("in_proj_bias")
    out = layer.child("out_proj").step()

    def run(flow: Flow) -> Flow:
        x = flow.plain()
        members, rows, tokens, _ = x.shape
        x = fill_rows(x, 1, layer.unit)
        found = product(Flow(x), weight, bias, 3 * width, layer.unit).plain()
        # (3, members * n * heads, T, width of a head)
        found = found.reshape(-1, tokens, 3, heads, width // heads).permute(2, 0, 3, 1, 4)
        query, key, value = found.flatten(1, 2).unbind(0)
        shares_of = torch.bmm(query / math.sqrt(width // heads), key.mT).softmax(-1)
        if any(shares):
            shares_of = shares_of * kept(layer, shares, shares_of.shape)
        y = torch.bmm(shares_of, value).unflatten(0, (members, -1, heads))
        return out(Flow(y.transpose(2, 3).flatten(3)[:, :rows]))

    return run


def encoder(layer: Layer) -> Step:
    """Return the step of an encoder's layer: attention and two linear layers, each added."""
    first = cast(nn.TransformerEncoderLayer, layer.modules[0])
    layer.needs(first.activation in (functional.relu, functional.gelu))
    attend = attention(layer.child("self_attn"))
    names = ("linear1", "linear2", "norm1", "norm2", "dropout", "dropout1", "dropout2")
    into, out, norm1, norm2, inner, drop1, drop2 = (layer.child(name).step() for name in names)
    activate = by_numbers(first.activation)(layer)

    def further(flow: Flow) -> Flow:
        return drop2(out(inner(activate(into(flow)))))

    def run(flow: Flow) -> Flow:
        x = flow.wide(layer.unit)
        if first.norm_first:
            x = _sum(x, drop1(attend(norm1(x))))
            return _sum(x, further(norm2(x)))
        x = norm1(_sum(x, drop1(attend(x))))
        return norm2(_sum(x, further(x)))

    return run


def _sum(x: Flow, y: Flow) -> Flow:
    return Flow(x.x + y.x, x.width)  # of one width, filled up alike


def position(layer: Layer) -> Step:
    """Return the step of a learned vector of each position."""
    weight = layer.tensor("weight")

    def run(flow: Flow) -> Flow:
        x = flow.wide(layer.unit)
        return Flow(x.x + weight[:, None], x.width)

    return run


def token_mean(layer: Layer) -> Step:
    """Return the step of a mean over all tokens."""

    def run(flow: Flow) -> Flow:
        x = flow.wide(layer.unit)
        return Flow(x.x.mean(2), x.width)

    return run


FORMS: dict[type[nn.Module], Form] = {
    vocabulary.SelfAttention: attention,
    nn.TransformerEncoderLayer: encoder,
    factories.Position: position,
    factories._TokenMean: token_mean,
}
