"""What libraries' files say of pictures, against the libraries' own processors."""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from mmdb import errors
from mmdb.data.decoding import Column
from mmdb.data.picture_config import compare_pictures, expected_pictures
from mmdb.data.pictures import decode_all, picture_transform
from mmdb.data.transform.fitting import check_asked

#: Of transformers': what a folder of it says besides its defaults; a size of 24 x 32 if none.
PROCESSORS: list[tuple[str, dict[str, Any]]] = [
    ("ViT", {}),
    ("ViT", {"do_normalize": False}),
    ("ViT", {"do_rescale": False, "image_mean": [127.5] * 3, "image_std": [60.0, 70.0, 80.0]}),
    ("ViT", {"rescale_factor": 1 / 127.5, "image_mean": [0.9, 1.0, 1.1]}),
    ("ViT", {"do_resize": False}),
    ("DeiT", {"crop_size": {"height": 24, "width": 32}}),
    ("EfficientNet", {"rescale_offset": True, "rescale_factor": 1 / 127.5, "do_normalize": False}),
    ("CLIP", {"crop_size": 28, "size": {"shortest_edge": 28}}),
    ("ConvNext", {"size": {"shortest_edge": 24}}),
]


def png(height: int, width: int) -> bytes:
    """Return a random picture."""
    drawn = np.random.default_rng(height).integers(0, 256, (height, width, 3), np.uint8)
    sink = io.BytesIO()
    Image.fromarray(drawn).save(sink, "PNG")
    return sink.getvalue()


@pytest.mark.parametrize(("name", "options"), PROCESSORS, ids=[str(one) for one in PROCESSORS])
def test_a_picture_of_the_size_is_the_librarys_to_rounding(
    name: str, options: dict[str, Any]
) -> None:
    library: Any = importlib.import_module("transformers")
    size = {"height": 24, "width": 32}
    processor = getattr(library, f"{name}ImageProcessorPil")(**{"size": size, **options})
    found = expected_pictures({}, processor.to_dict())
    assert found is not None
    transform, _ = found
    height, width = transform.get("size", [24, 32])
    file = png(height, width)
    wanted = processor(Image.open(io.BytesIO(file)))["pixel_values"][0]
    asked = check_asked("file", "picture", {"size": [height, width], **transform})
    own = picture_transform(asked)
    pixels, failed = decode_all(own, [file])
    assert failed == {}
    ours = own.apply(pixels).reshape(3, height, width)
    if name == "ConvNext":  # which resizes to size / crop_pct, and cuts: not the same picture
        assert ours.shape == np.asarray(wanted).shape
    else:
        np.testing.assert_allclose(ours, wanted, atol=2e-6)


def test_timm_says_it_in_its_config() -> None:
    timm = {
        "input_size": [3, 224, 224], "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225],
        "interpolation": "bicubic", "crop_pct": 0.95, "num_classes": 10,
    }  # fmt: skip
    found = expected_pictures({"architecture": "resnet18", "pretrained_cfg": timm}, {})
    assert found is not None
    transform, note = found
    assert transform == {
        "kind": "picture", "size": [224, 224], "mean": timm["mean"], "std": timm["std"]
    }  # fmt: skip
    assert "bicubic" in note and "cuts the middle" in note
    whole = {**timm, "input_size": [1, 28, 28], "mean": [0.13], "std": [0.3], "crop_pct": 1.0}
    found = expected_pictures({"pretrained_cfg": {**whole, "interpolation": "bilinear"}}, {})
    assert found is not None
    assert found[0]["channels"] == 1 and found[0]["mean"] == [0.13] and found[1] == ""
    check_asked("file", "picture", found[0])
    column = Column(name="f", kind="bytes", width=784, transform=picture_transform(found[0]))
    assert compare_pictures([column], found) == ()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)
KEYS = st.sampled_from(
    ("size", "crop_size", "image_mean", "image_std", "do_rescale", "rescale_factor", "resample",
     "do_normalize", "do_center_crop", "do_resize", "rescale_offset", "image_processor_type")
)  # fmt: skip


@given(st.dictionaries(KEYS, JSON), st.dictionaries(st.sampled_from(
    ("input_size", "mean", "std", "interpolation", "crop_pct")), JSON))  # fmt: skip
def test_whatever_files_say_is_understood_or_passed_over(
    preprocessor: dict[str, Any], timm: dict[str, Any]
) -> None:
    column = Column(name="f", kind="bytes", width=3072, transform=picture_transform({}))
    for expected in (
        expected_pictures({}, {"image_mean": [0, 0, 0], **preprocessor}),
        expected_pictures({"pretrained_cfg": {"mean": [0, 0, 0], **timm}}, {}),
    ):
        assert all(isinstance(note, str) for note in compare_pictures([], expected))
        try:
            compare_pictures([column], expected)
        except errors.ImportMismatch as error:
            assert "options {" in str(error.hint)
        if expected is not None and "size" in expected[0]:
            check_asked("f", "picture", expected[0])


@pytest.mark.parametrize(
    "asked",
    [
        {"mean": [0.5] * 3},
        {"std": [0.5] * 3},
        {"mean": [0.5], "std": [0.5]},
        {"mean": [0.5] * 3, "std": [0.5] * 3, "channels": 1},
        {"mean": [0.5] * 3, "std": [0.5, 0.5, 0]},
        {"mean": 0.5, "std": 0.5},
        {"mean": ["a"] * 3, "std": [1] * 3},
    ],
)
def test_a_mean_without_its_deviation_is_refused(asked: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidOption, match="file"):
        check_asked("file", "picture", {"kind": "picture", **asked})
