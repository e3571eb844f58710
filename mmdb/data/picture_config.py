"""Pictures as a library's network expects them, by the files beside it: the transform to use."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mmdb.arguments import is_number, is_whole
from mmdb.data.decoding import Column
from mmdb.errors import ImportMismatch

#: What Pillow's filters are called; mmdb's is the bilinear one.
_FILTERS = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
#: How far a mean or a deviation may be from the one that is meant: files have 3 to 8 digits.
_CLOSE = 1e-3


def expected_pictures(
    config: Mapping[str, Any], preprocessor: Mapping[str, Any]
) -> tuple[dict[str, Any], str] | None:
    """Return the transform of a column of pictures that a network expects, and what it cannot do.

    Args:
        config: of config.json; of timm's it has `pretrained_cfg`.
        preprocessor: of preprocessor_config.json, which transformers writes; empty for none.
    Returns:
        Parameters of `picture`, and a note on resizing, or ""; None where neither file says it, or
        what it says cannot be understood.
    """
    timm = config.get("pretrained_cfg")
    try:
        if "image_mean" in preprocessor or "image_processor_type" in preprocessor:
            return _of_transformers(preprocessor)
        return _of_timm(timm) if isinstance(timm, Mapping) and "mean" in timm else None
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return None


def _of_transformers(given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """Source: transformers, `BaseImageProcessor`: resize, crop, times a factor, less mean, by std.

    With x / 255 in place of x * factor, mean and deviation are over 255 * factor.
    """
    rescales = given.get("do_rescale", True)
    factor = 255 * float(given.get("rescale_factor", 1 / 255)) if rescales else 255
    mean, std = [0.0] * 3, [1.0] * 3
    if given.get("do_normalize", True):
        mean, std = given["image_mean"], given["image_std"]
    if given.get("include_top") is True:  # by the deviation once more, of EfficientNet
        std = [a * b for a, b in zip(std, given["image_std"], strict=True)]
    offset = 1.0 if given.get("rescale_offset") is True else 0.0  # x * factor - 1, of EfficientNet
    crops = given.get("do_center_crop", False) is True
    side = given.get("crop_size") if crops else given.get("size")
    is_cut = crops or (isinstance(side, Mapping) and "shortest_edge" in side)
    return _transform(
        _sides(side) if crops or given.get("do_resize", True) else None,
        [(one + offset) / factor for one in mean],
        [one / factor for one in std],
        _resizing(_FILTERS[given.get("resample", 2)], is_cut),
        channels=len(mean),
    )


def _of_timm(given: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    channels, *sides = given["input_size"]
    is_cut = given.get("crop_pct", 0.875) != 1
    note = _resizing(str(given.get("interpolation", "bilinear")), is_cut)
    return _transform(sides, given["mean"], given["std"], note, channels=channels)


def _sides(size: Any) -> Sequence[int] | None:
    if isinstance(size, Mapping):
        edge = size.get("shortest_edge")
        size = [size["height"], size["width"]] if edge is None else edge
    return [size, size] if is_whole(size, 1) else size


def _resizing(by: str, is_cut: bool) -> str:
    said = [f"resizes by {by}"] if by != "bilinear" else []
    said += ["cuts the middle out"] if is_cut else []
    if not said:
        return ""
    return f"the library {' and '.join(said)}; mmdb resizes the whole picture by bilinear"


def _transform(
    sides: Sequence[int] | None,
    mean: Sequence[float],
    std: Sequence[float],
    note: str,
    *,
    channels: int,
) -> tuple[dict[str, Any], str]:
    if channels not in (1, 3):
        raise ValueError(channels)
    found: dict[str, Any] = {"kind": "picture"} | ({"channels": 1} if channels == 1 else {})
    if sides is not None:
        if len(sides) != 2 or not all(is_whole(side, 1, 1024) for side in sides):
            raise ValueError(sides)
        found["size"] = list(sides)
    mean, std = ([*map(float, one)] for one in (mean, std))
    if (
        not len(mean) == len(std) in (1, channels)
        or not all(map(math.isfinite, (*mean, *std)))
        or min(std) <= 0
    ):
        raise ValueError(mean, std)
    if not _are_close(mean, [0.0]) or not _are_close(std, [1.0]):
        found |= {"mean": [round(x, 9) for x in mean], "std": [round(x, 9) for x in std]}
    return found, note


def compare_pictures(
    columns: Iterable[Column], expected: tuple[dict[str, Any], str] | None
) -> tuple[str, ...]:
    """Return notes on how a dataset's pictures differ from those that a network expects.

    Args:
        columns: of the dataset's inputs; none where there is no dataset.
        expected: see `expected_pictures`.
    Raises:
        ImportMismatch: they are normalised otherwise, so that answers would be wrong.
    """
    if expected is None:
        return ()
    wanted, resizing = expected
    pictures = [c for c in columns if c.transform is not None and c.transform.kind == "picture"]
    if not pictures:
        return (f"pictures as it expects them: {_option('COLUMN', wanted)}",)
    notes = [resizing] if resizing else []
    for column in pictures:
        assert column.transform is not None
        own = column.transform.parameters
        both = [(one.get("mean", [0.0]), one.get("std", [1.0])) for one in (own, wanted)]
        (mean, std), (wanted_mean, wanted_std) = both
        if not _are_close(mean, wanted_mean) or not _are_close(std, wanted_std):
            raise ImportMismatch(
                f"Pictures of column {column.name!r} have mean {mean} and std {std}; the network "
                f"expects {wanted_mean} and {wanted_std}.",
                hint=f"Make the dataset with {_option(column.name, wanted)}.",
            )
        sides = list(column.transform.statistics["shape"][1:])
        if sides != wanted.get("size", sides):
            notes.append(
                f"pictures of column {column.name!r} have size {sides}; the network expects "
                f"{wanted['size']}: {_option(column.name, wanted)}"
            )
    return tuple(notes)


def _option(column: str, wanted: Mapping[str, Any]) -> str:
    return f"options {json.dumps({'transforms': {column: wanted}})}"


def _are_close(a: Sequence[float], b: Sequence[float]) -> bool:
    size = max(len(a), len(b))
    if {len(a), len(b)} - {1, size}:
        return False
    a, b = ([*one] * (size if len(one) == 1 else 1) for one in (a, b))
    return all(is_number(x) and abs(x - y) <= _CLOSE for x, y in zip(a, b, strict=True))
