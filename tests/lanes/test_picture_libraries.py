"""Networks of timm and torchvision: as the library's own, and nothing else is loaded for them.

Their packages stand apart, for PyPI's torchvision does not load beside a build of torch for
processors alone, and transformers would try to.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from mmdb.errors import FactoryFailed
from mmdb.graph.spec.build import architecture_of, build, initial_module
from mmdb.graph.spec.parse import LIBRARIES
from tests.cluster import ROOT
from tests.torchvision_operators import load_torchvision

FACTORIES = {name: f"mmdb.graph.libraries:{name}" for name in LIBRARIES}
PICTURE, TOKENS = (3, 64, 64), (12,)
FOLDER = ROOT / ".venv-pictures"
PACKAGES = ("timm==1.0.31", "torchvision==0.28.0")


@pytest.fixture(autouse=True, scope="module")
def packages() -> None:
    """Install both where they are missing, without torch, which is there."""
    if not FOLDER.exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*pip, "--target", str(FOLDER), *PACKAGES], check=True)
    sys.path.append(str(FOLDER))
    load_torchvision()


def made(architecture: Any, shape: tuple[int, ...], outputs: int = 5) -> torch.nn.Module:
    return initial_module(architecture, {}, shape, outputs, FACTORIES, seed=3).eval()


@pytest.mark.parametrize(
    "name", ["resnet18", "vit_tiny_patch16_224", "efficientnet_b0", "mixer_s32_224"]
)
def test_networks_of_timm_are_its_own(name: str) -> None:
    timm: Any = importlib.import_module("timm")
    sized = timm.get_pretrained_cfg(name).fixed_input_size
    own = timm.create_model(name, num_classes=5, **({"img_size": 64} if sized else {})).eval()
    check_like(own, made(f"timm:{name}", PICTURE), torch.randn(2, *PICTURE))


@pytest.mark.parametrize("name", ["mobilenet_v3_small", "resnet18", "googlenet", "squeezenet1_1"])
def test_networks_of_torchvision_are_its_own(name: str) -> None:
    torchvision: Any = importlib.import_module("torchvision")
    more = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    own = torchvision.models.get_model(name, weights=None, num_classes=5, **more).eval()
    check_like(own, made(f"torchvision:{name}", PICTURE), torch.randn(2, *PICTURE))


def check_like(own: torch.nn.Module, found: torch.nn.Module, x: torch.Tensor) -> None:
    own.load_state_dict(found.state_dict())
    with torch.no_grad():
        assert torch.equal(own(x), found(x))


def test_structures_are_traced() -> None:
    structure = architecture_of("timm:resnet18", {}, PICTURE, 5, FACTORIES)
    assert structure.is_traced
    assert structure.parameter_bytes >= 4 * 11_000_000


REFUSED: list[tuple[str, Mapping[str, object], tuple[int, ...], str]] = [
    ("timm", {"name": "resnet19"}, PICTURE, "no network 'resnet19'"),
    ("timm", {"name": "hf-hub:timm/resnet18"}, PICTURE, "no network"),
    ("timm", {"name": "local-dir:."}, PICTURE, "no network"),
    ("timm", {"name": "resnet18", "checkpoint_path": "x"}, PICTURE, "would load"),
    ("timm", {"name": "resnet18", "pretrained": True}, PICTURE, "would load"),
    ("timm", {"name": "resnet18", "pretrained_cfg": {"file": "x"}}, PICTURE, "would load"),
    ("timm", {"name": "resnet18", "num_classes": 3}, PICTURE, "the label needs 5"),
    ("timm", {"name": "resnet18"}, TOKENS, "reads pictures"),
    ("torchvision", {"name": "resnet18", "weights": "DEFAULT"}, PICTURE, "would load"),
    ("torchvision", {"name": "fasterrcnn_resnet50"}, PICTURE, "no network"),
]


@pytest.mark.parametrize(("factory", "arguments", "shape", "said"), REFUSED)
def test_what_cannot_be_built_says_why(
    factory: str, arguments: Mapping[str, object], shape: tuple[int, ...], said: str
) -> None:
    with pytest.raises(FactoryFailed, match=said):
        build(factory, arguments, shape, 5, FACTORIES)
