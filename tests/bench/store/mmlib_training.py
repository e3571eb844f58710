"""A training that MMLib's provenance approach can store and repeat.

MMLib stores this file beside each model and imports it again to recover one, so it stands alone;
the optimizer and the data have files of their own because it wants one file for each object.
"""

from __future__ import annotations

from typing import Any

from mmlib.deterministic import set_deterministic  # type: ignore[import-not-found]
from mmlib.schema.restorable_object import (  # type: ignore[import-not-found]
    RestorableObjectWrapper,
    StateDictRestorableObjectWrapper,
    StateFileRestorableObjectWrapper,
    TrainService,
)
from mmlib.util.init_from_file import create_object  # type: ignore[import-not-found]
from torch import nn


class OneEpoch(TrainService):  # type: ignore[misc]
    """Trains for one pass over the data."""

    def train(self, model: nn.Module, lr: float) -> None:
        """Train in place."""
        set_deterministic()
        model.train()
        for x, y in self.state_objs["loader"].instance:
            optimizer = self._optimizer(model)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        model.eval()

    def _optimizer(self, model: nn.Module) -> Any:
        wrapper = self.state_objs["optimizer"]
        if not wrapper.instance:
            wrapper.restore_instance({"params": model.parameters()})
        return wrapper.instance


class OneEpochWrapper(StateDictRestorableObjectWrapper):  # type: ignore[misc]
    """What MMLib stores of the service, and how it makes it again."""

    def restore_instance(self, files: Any, documents: Any, root: str) -> None:
        """Make the service again with the optimizer, data and loader that were stored."""

        def stored(kind: Any, name: str) -> Any:
            return kind.load(self.state_objs[name], files, documents, root, True, True)

        data = stored(RestorableObjectWrapper, "data")
        data.restore_instance()
        loader = stored(RestorableObjectWrapper, "loader")
        loader.restore_instance(ref_type_args={"dataset": data.instance})
        optimizer = stored(StateFileRestorableObjectWrapper, "optimizer")
        self.instance = create_object(code=self.code.path, class_name=self.class_name)
        self.instance.state_objs = {"optimizer": optimizer, "data": data, "loader": loader}
