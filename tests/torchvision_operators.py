"""Loads torchvision beside a build of torch that its compiled operators were not made for.

They cut and rank boxes; networks that tell pictures apart use none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch


def load_torchvision() -> None:
    """Import torchvision, without shapes of operators that are not there."""
    register = torch.library.register_fake

    def passed_over(operator: Any, *given: Any, **named: Any) -> Callable[..., Any]:
        if str(operator).startswith("torchvision::"):
            return lambda function: function
        found: Callable[..., Any] = register(operator, *given, **named)
        return found

    try:
        importlib.import_module("torchvision")
    except RuntimeError:  # operator torchvision::nms does not exist
        torch.library.register_fake = passed_over
        try:
            importlib.import_module("torchvision")
        finally:
            torch.library.register_fake = register
