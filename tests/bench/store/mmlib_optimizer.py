"""An optimizer that MMLib can store with its state."""

from __future__ import annotations

import torch
from mmlib.schema.restorable_object import (  # type: ignore[import-not-found]
    StateFileRestorableObject,
)
from torch.optim import SGD


class StoredSGD(SGD, StateFileRestorableObject):  # type: ignore[misc]
    """SGD whose state MMLib keeps in a file."""

    def save_instance_state(self, path: str) -> None:
        """Write the optimizer's state."""
        torch.save(self.state_dict(), path)

    def restore_instance_state(self, path: str) -> None:
        """Read the optimizer's state."""
        self.load_state_dict(torch.load(path))
