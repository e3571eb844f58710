"""Networks for rows of mixed columns: numbers, codes of categories and of words, pictures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from mmdb.arguments import is_number, is_whole
from mmdb.errors import FactoryFailed
from mmdb.messages import show

#: Runs of a row's numbers: ["number", n] to be embedded, ["plain", n] to be taken as they are,
#: ["code", codes, dimension] for one code, ["words", n, codes, dimension] for the codes of n words,
#: ["picture", channels, height, width]. Filled in by a run from its dataset's transforms.
Columns = Sequence[Sequence[str | int]]

#: Frequencies, and numbers, of a number's embedding; section B of the paper has 16 and 4.
FREQUENCIES, EMBEDDED = 16, 4
_MOST_MEMBERS = 64
#: What an ensemble averages; of small tables the mean of probabilities errs less confidently.
AVERAGES = ("outputs", "probabilities")
#: The codes of NULL, or no word, and of what no train row had; see `mmdb.data.transform.transform`.
MISSING_CODE, UNKNOWN_CODE = 0, 1
#: Channels of the layers that read a picture, and what they make of it.
_CHANNELS, _PICTURE_FEATURES = (32, 64, 64), 64


def tabular(
    input_shape: tuple[int, ...],
    outputs: int,
    *,
    columns: Columns | None = None,
    scale: Sequence[float] | None = None,
    hidden: Sequence[int] = (256, 256, 256),
    ensemble: int = 1,
    dropout: float = 0.0,
    embedding_dropout: float = 0.0,
    periodic: bool = True,
    averages: str = "outputs",
    linear_gain: float = 1.0,
) -> nn.Module:
    """Return a network for rows of mixed columns: embedded numbers and codes, an MLP, and a skip.

    Args:
        input_shape: (F,); more dimensions are flattened.
        columns: what each of the F numbers is, see `Columns`; None: all are numbers to be embedded.
        periodic: whether numbers are embedded by waves; else they are taken as they are.
        averages: of an ensemble's members, "outputs", or "probabilities" of classes, whose
            logarithms are the outputs then.
        linear_gain: what the linear part's weights count, above 0: of few rows a rate that suits
            the network is a tenth of what suits it.
        scale: mean and deviation of the target, which outputs are scaled back by.
        hidden: units of each layer; with none of them the network is its linear part.
        ensemble: members that share most weights (BatchEnsemble). While it trains, the module
            returns the output of each, (n, members, outputs); else their mean.
        dropout: probability in [0, 1), after each hidden layer.
        embedding_dropout: probability in [0, 1) that a row's code counts as unknown in training.
    Raises:
        FactoryFailed: an argument is out of range.
    Source: Holzmueller et al., NeurIPS 2024 (RealMLP): robust numbers, PBLD embeddings, a learned
        scale of each feature; Gorishniy et al., ICLR 2025 (TabM): the ensemble.
    """
    width = math.prod(input_shape)
    runs: Columns = [["number", width]] if columns is None else columns
    check_columns(runs, width)
    if not is_whole(ensemble, 1, _MOST_MEMBERS):
        raise FactoryFailed(
            f"ensemble must be a whole number from 1 to {_MOST_MEMBERS}, not {show(ensemble)}"
        )
    for name, value in (("dropout", dropout), ("embedding_dropout", embedding_dropout)):
        if not is_number(value, 0) or value >= 1:
            raise FactoryFailed(f"{name} must be a number from 0 to below 1, not {show(value)}")
    if not isinstance(periodic, bool) or averages not in AVERAGES:
        raise FactoryFailed(
            f"periodic is {show(periodic)} and averages {show(averages)}",
            hint=f"periodic is true or false, averages {' or '.join(AVERAGES)}.",
        )
    if not periodic:
        runs = [["plain" if kind == "number" else kind, *further] for kind, *further in runs]
    if not is_number(linear_gain, 1e-6, 1e6):
        raise FactoryFailed(f"linear_gain must be a number above 0, not {show(linear_gain)}")
    widths = [hidden] if isinstance(hidden, int) else list(hidden)
    if len(widths) > 100 or not all(is_whole(one, 1, 2**20) for one in widths):
        raise FactoryFailed(f"hidden must be a list of layers' widths, not {show(hidden)}")
    rows = ColumnInput(runs, dropout=embedding_dropout)
    deep = DeepColumns(rows, outputs, widths, members=ensemble, dropout=dropout) if widths else None
    scaled = None if scale is None else Scaled(scale)
    return TabularNetwork(rows, deep, outputs, scaled, averages=averages, gain=linear_gain)


def check_columns(columns: Columns, width: int) -> None:
    """Check that columns speak of as many numbers as a row has.

    Raises:
        FactoryFailed
    """
    found = sum(map(_width, columns))
    if found != width:
        raise FactoryFailed(
            f"columns speak of {found} numbers; a row has {width}",
            hint="Leave columns out: a run fills them in from its dataset.",
        )


class Scaled(nn.Module):
    """Scales standardized outputs back to the target's units."""

    def __init__(self, scale: Sequence[float]) -> None:
        """Take the target's mean and deviation.

        Raises:
            FactoryFailed
        """
        super().__init__()
        if not isinstance(scale, list | tuple) or len(scale) != 2 or not all(map(is_number, scale)):
            raise FactoryFailed(f"scale must be a list of mean and deviation, not {show(scale)}")
        self.mean, self.deviation = map(float, scale)

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs in units of the target."""
        return x * self.deviation + self.mean


def _width(run: Sequence[str | int]) -> int:
    match run:
        case ["number" | "plain", int(numbers)] if is_whole(numbers, 1):
            return numbers
        case ["code", int(codes), int(dimension)]:
            if is_whole(codes, 1, 2**24) and is_whole(dimension, 1, 2**16):
                return 1
        case ["words", int(words), int(codes), int(dimension)]:
            if is_whole(words, 1) and is_whole(codes, 1, 2**24) and is_whole(dimension, 1, 2**16):
                return words
        case ["picture", *sizes] if len(sizes) == 3 and all(is_whole(s, 1, 2**16) for s in sizes):
            return math.prod(map(int, sizes))
    raise FactoryFailed(
        f"columns hold {show(run)}",
        hint='They are lists such as ["number", 3], ["plain", 2] and ["code", 100, 16].',
    )


class WordsInput(nn.Module):
    """Embeds the codes of a text's words and takes their mean: (n, words) -> (n, dimension)."""

    def __init__(self, codes: int, dimension: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(codes, dimension)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.width = dimension

    def forward(self, x: Tensor) -> Tensor:
        """Return the mean of the words that there are, 0 where there is none."""
        codes = x.long()
        there = (codes != MISSING_CODE).to(x.dtype)[:, :, None]
        found: Tensor = (self.embedding(codes) * there).sum(1)
        return found / there.sum(1).clamp(min=1.0)


class PictureInput(nn.Module):
    """A small convolutional network: (n, channels * height * width) -> (n, width)."""

    def __init__(self, channels: int, height: int, width: int) -> None:
        super().__init__()
        self.shape, self.width = (channels, height, width), _PICTURE_FEATURES
        layers: list[nn.Module] = []
        for after in _CHANNELS:
            layers += [nn.Conv2d(channels, after, 3, padding=1), nn.ReLU()]
            channels, height, width = after, height // 2, width // 2
            if min(height, width) >= 2:
                layers.append(nn.MaxPool2d(2))
        pooled = [nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * channels, self.width)]
        self.layers = nn.Sequential(*layers, *pooled)

    def forward(self, x: Tensor) -> Tensor:
        """Return features of the pictures."""
        features: Tensor = self.layers(x.reshape(-1, *self.shape))
        return features


class ColumnInput(nn.Module):
    """Puts a row's numbers first, then plain ones, then embedded codes: (n, ...) -> (n, width).

    What is made of words and pictures comes last.

    Attributes:
        parts: of a row as it is returned: a number's place in the row, or the first one, how many
            numbers it becomes, and the module that makes them, "" for those that stay.
        reads: how many numbers a row has.
    """

    def __init__(self, runs: Columns, *, dropout: float = 0.0) -> None:
        """Args: dropout: probability that a code counts as unknown in training."""
        super().__init__()
        places: dict[str, list[int]] = {"number": [], "plain": [], "code": []}
        sizes: list[tuple[int, int]] = []
        spans: list[tuple[int, int]] = []
        readers: list[WordsInput | PictureInput] = []
        place = 0
        for kind, *further in runs:
            start, place = place, place + _width((kind, *further))
            numbers_of = [int(one) for one in further]
            if kind in ("words", "picture"):
                spans.append((start, place))
                readers.append(
                    WordsInput(*numbers_of[1:]) if kind == "words" else PictureInput(*numbers_of)
                )
                continue
            places[str(kind)] += range(start, place)
            if kind == "code":
                sizes.append((numbers_of[0], numbers_of[1]))
        numbers = torch.tensor([*places["number"], *places["plain"]], dtype=torch.int64)
        self.numbers: Tensor
        self.register_buffer("numbers", numbers, persistent=False)
        self.codes, self.dropout = tuple(places["code"]), dropout
        embeddings = [nn.Embedding(*size) for size in sizes]
        for embedding in embeddings:
            nn.init.normal_(embedding.weight, std=0.3)
        self.embeddings = nn.ModuleList(embeddings)
        self.number_count = len(places["number"])
        self.spans, self.readers = tuple(spans), nn.ModuleList(readers)
        self.reads = place
        self.parts = [(one, 1, "") for one in (*places["number"], *places["plain"])]
        for n, (one, (_, dimension)) in enumerate(zip(self.codes, sizes, strict=True)):
            self.parts.append((one, dimension, f"embeddings.{n}"))
        for n, ((start, _), reader) in enumerate(zip(spans, readers, strict=True)):
            self.parts.append((start, reader.width, f"readers.{n}"))
        self.width = sum(width for _, width, _ in self.parts)

    def forward(self, x: Tensor) -> Tensor:
        """Return the rows in their new order."""
        x = x.flatten(1)
        parts = [x.index_select(1, self.numbers)]
        for place, embedding in zip(self.codes, self.embeddings, strict=True):
            codes = x[:, place].long()
            if self.training and self.dropout:
                unknown = torch.rand(codes.shape, device=codes.device) < self.dropout
                codes = codes.masked_fill(unknown, UNKNOWN_CODE)
            parts.append(embedding(codes))
        for (start, end), reader in zip(self.spans, self.readers, strict=True):
            parts.append(reader(x[:, start:end]))
        return torch.cat(parts, 1)


class PeriodicEmbedding(nn.Module):
    """Embeds each number by waves of learned frequency, beside itself: (n, F) -> (n, F * EMBEDDED).

    Source: Holzmueller et al., NeurIPS 2024, section B (PBLD).
    """

    def __init__(self, numbers: int) -> None:
        super().__init__()
        self.frequency = nn.Parameter(torch.randn(numbers, FREQUENCIES) * 0.1)
        self.phase = nn.Parameter((torch.rand(numbers, FREQUENCIES) * 2 - 1) * math.pi)
        bound = 1 / math.sqrt(FREQUENCIES)
        shape = (numbers, FREQUENCIES, EMBEDDED - 1)
        self.weight = nn.Parameter((torch.rand(shape) * 2 - 1) * bound)
        self.bias = nn.Parameter((torch.rand(numbers, EMBEDDED - 1) * 2 - 1) * bound)

    def forward(self, x: Tensor) -> Tensor:
        """Return the embedded numbers."""
        waves = torch.cos(2 * math.pi * x[:, :, None] * self.frequency + self.phase)
        mixed = torch.einsum("nfk,fkd->nfd", waves, self.weight) + self.bias
        return torch.cat([mixed, x[:, :, None]], 2).flatten(1)


class SharedLinear(nn.Module):
    """A linear layer whose members share the weight: (n, members, before) -> (n, members, after).

    Each has factors of its own for what goes in and comes out, and a bias (BatchEnsemble).
    """

    def __init__(self, before: int, after: int, members: int, *, is_first: bool) -> None:
        super().__init__()
        bound = 1 / math.sqrt(before)
        self.weight = nn.Parameter((torch.rand(after, before) * 2 - 1) * bound)
        self.bias = nn.Parameter((torch.rand(members, after) * 2 - 1) * bound)
        signs = torch.randint(0, 2, (members, before)) * 2.0 - 1.0
        self.into = nn.Parameter(signs if is_first else torch.ones(members, before))
        self.out = nn.Parameter(torch.ones(members, after))

    def forward(self, x: Tensor) -> Tensor:
        """Return what each member makes of its row."""
        return nn.functional.linear(x * self.into, self.weight) * self.out + self.bias


class MemberLinear(nn.Module):
    """A linear layer of each member's own: (n, members, before) -> (n, members, after)."""

    def __init__(self, before: int, after: int, members: int) -> None:
        super().__init__()
        bound = 1 / math.sqrt(before)
        self.weight = nn.Parameter((torch.rand(members, before, after) * 2 - 1) * bound)
        self.bias = nn.Parameter(torch.zeros(members, after))

    def forward(self, x: Tensor) -> Tensor:
        """Return what each member makes of its row."""
        return torch.einsum("nmb,mba->nma", x, self.weight) + self.bias


class DeepColumns(nn.Module):
    """An MLP of the embedded columns: (n, D) -> (n, members, outputs), or (n, outputs) for one."""

    def __init__(
        self,
        columns: ColumnInput,
        outputs: int,
        hidden: Sequence[int],
        *,
        members: int,
        dropout: float,
    ) -> None:
        super().__init__()
        self.members, self.numbers = members, columns.number_count
        self.embedding = PeriodicEmbedding(self.numbers) if self.numbers else None
        widths = [columns.width + self.numbers * (EMBEDDED - 1), *hidden]
        self.feature_scale = nn.Parameter(torch.ones(widths[0]))
        self.layers = nn.ModuleList(
            nn.Linear(before, after)
            if members == 1
            else SharedLinear(before, after, members, is_first=place == 0)
            for place, (before, after) in enumerate(pairwise(widths))
        )
        self.dropout = nn.Dropout(dropout)
        self.head: nn.Module = nn.Linear(widths[-1], outputs)
        if members > 1:
            self.head = MemberLinear(widths[-1], outputs, members)

    def forward(self, row: Tensor) -> Tensor:
        """Return the outputs of rows as `ColumnInput` makes them."""
        if self.embedding is not None:
            embedded = self.embedding(row[:, : self.numbers])
            row = torch.cat([embedded, row[:, self.numbers :]], 1)
        h = row * self.feature_scale
        if self.members > 1:
            h = h[:, None, :]
        for layer in self.layers:
            h = self.dropout(nn.functional.silu(layer(h)))
        return self.head(h)  # type: ignore[no-any-return]


class TabularNetwork(nn.Module):
    """A linear layer of a row's columns, and an MLP of them beside it, whose outputs are added."""

    def __init__(
        self,
        columns: ColumnInput,
        deep: DeepColumns | None,
        outputs: int,
        scale: Scaled | None,
        *,
        averages: str = AVERAGES[0],
        gain: float = 1.0,
    ) -> None:
        super().__init__()
        self.averages = averages
        self.columns, self.deep = columns, deep
        self.linear = nn.Linear(columns.width, outputs)
        self.gain = float(gain)
        with torch.no_grad():
            for parameter in self.linear.parameters():
                parameter.div_(self.gain)
        self.scale = scale or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """Return (n, outputs); while an ensemble trains (n, members, outputs)."""
        row = self.columns(x)
        y = self.linear(row) * self.gain
        if self.deep is not None:
            found = self.deep(row)
            is_ensemble = self.deep.members > 1  # a trace knows no shapes
            y = (y[:, None, :] if is_ensemble else y) + found
            if is_ensemble and not self.training:
                y = self._mean(y)
        return self.scale(y)  # type: ignore[no-any-return]

    def _mean(self, y: Tensor) -> Tensor:
        """Return what the members of an ensemble say together: (n, members, outputs) to two."""
        if self.averages == "outputs":
            return y.mean(1)
        members = self.deep.members  # type: ignore[union-attr]  # a trace knows no shapes
        return torch.logsumexp(torch.log_softmax(y, 2), 1) - math.log(members)
