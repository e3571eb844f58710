"""iatransfer 1.0.3 with its defaults, run as it is from a folder.

    pip install --no-deps --target FOLDER iatransfer==1.0.3 inflection

Its other requirements serve parts that the defaults (block standardisation, dynamic programming,
clipping, shape score) never call; where they are missing, empty modules stand in for the imports.

Source: Czyżewski et al. 2022, "Breaking the Architecture Barrier" (arXiv 2212.13970).
"""

from __future__ import annotations

import importlib
import sys
import types
import warnings
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import Tensor, nn


def _nothing(*_: object, **__: object) -> None:
    """Stand in for a class that is made when the package is imported."""


#: Modules and what is imported from them.
UNUSED: dict[str, tuple[str, ...]] = {
    "matplotlib": (),
    "matplotlib.pyplot": (),
    "graphviz": ("Digraph",),
    "karateclub": ("FeatherNode", "NetMF"),
}


@dataclass(frozen=True, slots=True)
class IaTransfer:
    """The package in a folder."""

    folder: Path
    name: str = "iatransfer"
    refuses_unlearned: bool = False
    gentle: bool = False

    def initialise(self, child: nn.Module, parent: nn.Module, seed: int, example: Tensor) -> None:
        _package(self.folder).IAT()(parent, child)


@cache
def _package(folder: Path) -> Any:
    if not (folder / "iatransfer" / "toolkit").is_dir():
        raise FileNotFoundError(f"{folder} holds no package iatransfer")
    missing = {name for name in UNUSED if "." not in name and find_spec(name) is None}
    for name, members in UNUSED.items():
        if name.partition(".")[0] in missing:
            module = types.ModuleType(name)
            module.__dict__.update(dict.fromkeys(members, _nothing))
            sys.modules[name] = module
    sys.path.append(str(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("iatransfer.toolkit")
