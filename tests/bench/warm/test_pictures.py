"""Drawn pictures and digits: the same seed, the same bits; all classes; nuisance that is apart."""

from __future__ import annotations

import numpy as np
import torch

from tests.bench.warm.nuisance import CHILD, PARENT
from tests.bench.warm.pictures import CLASSES, FIELDS, digit_pictures, drawn_pictures, shuffled


def test_a_seed_gives_the_same_pictures_and_another_seed_others() -> None:
    first, again, other = (drawn_pictures(1500, seed, CHILD) for seed in (1, 1, 2))
    assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])
    assert not torch.equal(first[0], other[0])


def test_pictures_are_bytes_of_ten_classes_each_as_likely() -> None:
    x, y = drawn_pictures(2000, 0, PARENT)
    assert x.shape == (2000, 3, 32, 32) and x.dtype == torch.uint8
    assert y.bincount(minlength=CLASSES).min() > 140


def test_the_shapes_of_two_classes_differ() -> None:
    """Drawn without nuisance, no two cover the same pixels."""
    axis = np.linspace(-1, 1, 64, dtype=np.float32)
    u, v = np.meshgrid(axis, axis)
    masks = [field(u, v) > 0 for field in FIELDS.values()]
    for k, mask in enumerate(masks):
        assert 0.1 < mask.mean() < 0.8
        for other in masks[:k]:
            assert (mask & other).sum() / (mask | other).sum() < 0.85


def test_parent_and_child_share_no_hue_and_no_pattern() -> None:
    assert PARENT.hues[1] <= CHILD.hues[0]
    assert PARENT.waves[1] <= CHILD.waves[0]


def test_digits_are_all_there_once_for_each_copy() -> None:
    x, y = digit_pictures(slice(None), 2, 0, CHILD)
    assert x.shape == (3594, 3, 16, 16) and x.dtype == torch.uint8
    assert y[:1797].bincount().tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert torch.equal(y[:1797], y[1797:])
    assert not torch.equal(x[0], x[1797])


def test_the_order_of_digits_is_always_the_same() -> None:
    whole = digit_pictures(slice(None), 1, 0, CHILD)[1]
    assert torch.equal(digit_pictures(slice(700, 1400), 1, 9, PARENT)[1], whole[700:1400])


def test_shuffled_labels_keep_the_classes_and_lose_the_pictures() -> None:
    _, y = drawn_pictures(1000, 0, PARENT)
    other = shuffled(y, seed=1)
    assert torch.equal(other.bincount(), y.bincount())
    assert (other == y).float().mean() < 0.2
