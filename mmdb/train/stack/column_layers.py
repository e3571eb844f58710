"""Layers of rows of mixed columns, of several networks at once; see `mmdb.graph.tabular`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from mmdb.graph import tabular
from mmdb.train.stack.flow import Flow, Form, Layer, Step, by_numbers, fill, settled
from mmdb.train.stack.layers import looked_up, product


def columns(layer: Layer) -> Step:
    """Return the step of what reads a row's columns."""
    first = cast(tabular.ColumnInput, layer.modules[0])
    shares = [cast(tabular.ColumnInput, module).dropout for module in layer.modules]
    tables = [layer.tensor(f"embeddings.{k}.weight") for k in range(len(first.codes))]
    readers = [layer.child(f"readers.{k}").step() for k in range(len(first.readers))]

    def run(flow: Flow) -> Flow:
        x = flow.plain().flatten(2)
        parts = [x.index_select(2, first.numbers)]
        for place, table in zip(first.codes, tables, strict=True):
            codes = x[:, :, place].long()
            if any(shares):
                codes = codes.masked_fill(_unknown(layer, shares, codes), tabular.UNKNOWN_CODE)
            parts.append(looked_up(table, codes))
        for (start, end), reader in zip(first.spans, readers, strict=True):
            parts.append(reader(Flow(x[:, :, start:end])).plain())
        return Flow(torch.cat(parts, 2)).wide(layer.unit)

    return run


def _unknown(layer: Layer, shares: Sequence[float], codes: Tensor) -> Tensor:
    """Return which codes count as unknown."""
    drawn = torch.ones(*codes.shape)
    for own, share, generator in zip(drawn, shares, layer.draws, strict=True):
        if share:
            torch.rand(own.shape, generator=generator, out=own)
    return drawn < torch.tensor(shares)[:, None]


def words(layer: Layer) -> Step:
    """Return the step of the mean of a text's words."""
    table = layer.tensor("embedding.weight")

    def run(flow: Flow) -> Flow:
        codes = flow.plain()
        there = (codes != tabular.MISSING_CODE).to(codes.dtype)[..., None]
        found = fill(looked_up(table, codes) * there, layer.unit).sum(2)
        return Flow(found / there.sum(2).clamp(min=1.0), table.shape[2])

    return run


def picture(layer: Layer) -> Step:
    """Return the step of what reads a column of pictures."""
    first = cast(tabular.PictureInput, layer.modules[0])
    step = layer.child("layers").step()
    return lambda flow: step(Flow(flow.plain().unflatten(2, first.shape)))


def waves(layer: Layer) -> Step:
    """Return the step of numbers that waves embed."""
    names = ("frequency", "phase", "weight", "bias")
    frequency, phase, weight, bias = (layer.tensor(name) for name in names)
    members, numbers, count = frequency.shape
    after = tabular.EMBEDDED - 1
    cosine = by_numbers(torch.cos)(layer)

    def run(flow: Flow) -> Flow:
        x = flow.plain()  # (members, n, F)
        angles = 2 * math.pi * x[..., None] * frequency[:, None] + phase[:, None]
        found = cosine(Flow(angles)).x.transpose(1, 2).contiguous()
        found = found.view(members * numbers, -1, count)
        mixed = torch.baddbmm(bias.flatten(0, 1)[:, None], found, weight.flatten(0, 1))
        mixed = settled(mixed).unflatten(0, (members, numbers)).transpose(1, 2)
        return Flow(torch.cat([mixed[..., :after], x[..., None]], 3).flatten(2))

    return run


def shared_linear(layer: Layer) -> Step:
    """Return the step of a linear layer whose members share the weight: those of an ensemble."""
    first = cast(tabular.SharedLinear, layer.modules[0])
    names = ("weight", "bias", "into", "out")
    weight, bias, into, out = (layer.tensor(name) for name in names)

    def run(flow: Flow) -> Flow:
        x = flow.wide(layer.unit)
        y = product(Flow(x.x * into[:, None], x.width), weight, None, len(first.weight), layer.unit)
        return Flow(y.x * out[:, None] + bias[:, None], y.width)

    return run


def member_linear(layer: Layer) -> Step:
    """Return the step of a linear layer of each member's own: of an ensemble's members."""
    first = cast(tabular.MemberLinear, layer.modules[0])
    weight, bias = layer.tensor("weight"), layer.tensor("bias")

    def run(flow: Flow) -> Flow:
        x = flow.wide(layer.unit).x.transpose(1, 2).contiguous()  # of the ensemble before n
        y = settled(torch.bmm(x.flatten(0, 1), weight.flatten(0, 1))).unflatten(0, x.shape[:2])
        return Flow(y.transpose(1, 2) + bias[:, None], first.bias.shape[1])

    return run


def deep(layer: Layer) -> Step:
    """Return the step of an MLP of embedded columns."""
    first = cast(tabular.DeepColumns, layer.modules[0])
    embed = None if first.embedding is None else layer.child("embedding").step()
    scale = layer.tensor("feature_scale")
    layers = [layer.child(f"layers.{k}").step() for k in range(len(first.layers))]
    silu, drop = by_numbers(nn.functional.silu)(layer), layer.child("dropout").step()
    head = layer.child("head").step()

    def run(flow: Flow) -> Flow:
        row = flow.plain()
        if embed is not None:
            embedded = embed(Flow(row[..., : first.numbers])).x
            row = torch.cat([embedded, row[..., first.numbers :]], 2)
        x = Flow(fill(row, layer.unit) * scale[:, None], row.shape[2])
        if first.members > 1:
            x = Flow(x.x[:, :, None], x.width)
        for step in layers:
            x = drop(silu(step(x)))
        return head(x)

    return run


def network(layer: Layer) -> Step:
    """Return the step of a network for rows of mixed columns."""
    first = cast(tabular.TabularNetwork, layer.modules[0])
    read, linear, scale = (layer.child(name).step() for name in ("columns", "linear", "scale"))
    further = None if first.deep is None else layer.child("deep").step()

    def run(flow: Flow) -> Flow:
        row = read(flow)
        y = linear(row).plain() * first.gain
        if first.deep is not None and further is not None:
            found = further(row).plain()
            y = (y[:, :, None] if first.deep.members > 1 else y) + found
        return scale(Flow(y))

    return run


def scaled(layer: Layer) -> Step:
    """Return the step of outputs in units of the target."""
    first = cast(tabular.Scaled, layer.modules[0])
    return lambda flow: Flow(flow.plain() * first.deviation + first.mean)


#: Of networks that `mmdb.graph.factories.mlp` and `linear` make.
PLAIN: dict[type[nn.Module], Form] = {tabular.ColumnInput: columns, tabular.Scaled: scaled}
FORMS: dict[type[nn.Module], Form] = {
    tabular.WordsInput: words,
    tabular.PictureInput: picture,
    tabular.PeriodicEmbedding: waves,
    tabular.SharedLinear: shared_linear,
    tabular.MemberLinear: member_linear,
    tabular.DeepColumns: deep,
    tabular.TabularNetwork: network,
}
