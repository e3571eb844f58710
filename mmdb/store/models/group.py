"""Recovers the network of one group out of a model that has one for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
from torch import nn

from mmdb.data.dataset import find_decoding
from mmdb.data.decoding import Decoding
from mmdb.data.functions import find_factories
from mmdb.errors import InvalidInput, InvalidOption
from mmdb.graph.grouped import EACH, Grouped
from mmdb.messages import show
from mmdb.store.models.model_rows import SavedModel
from mmdb.store.models.module import assemble
from mmdb.store.models.recover import Cache, ModelReader


class GroupReader:
    """Recovers networks of groups."""

    def __init__(self, reader: ModelReader, decodings: Cache[int, Decoding]) -> None:
        """Args: decodings: by dataset_id, kept between calls."""
        self._reader, self._decodings = reader, decodings

    def recover(
        self, model: SavedModel, value: object, whole: Callable[[], nn.Module]
    ) -> nn.Module:
        """Return the network that answers for a value of the groups' column; no other one is read.

        It takes rows without that column. A value that no train row had has the common network.

        Args:
            whole: recovers all of a model whose tensors are not stored.
        Raises:
            InvalidOption: the model has no groups.
            InvalidInput: it is not known which number a value has.
            CorruptTensor
        """
        definition = model.definition
        if definition is None or "network" not in definition.architecture:
            raise InvalidOption(
                f"group is {show(value)}, and model {model.reference} has no groups.",
                hint="A run that create_run was told `per` makes such models.",
            )
        architecture = definition.architecture
        code = self._code(model, str(architecture["per"]), value)
        if model.manifest_id is None:
            return cast("Grouped", whole()).of(code).eval()
        entries = [
            entry
            for entry in self._reader.catalog(model).entries
            if entry.path.startswith(EACH) and entry.kind in ("parameter", "buffer")
        ]
        tensors = {
            entry.path.removeprefix(EACH): self._reader.rows(model, entry.path, code, code + 1)[0]
            for entry in entries
        }
        (width,) = cast("tuple[int]", definition.input_shape)
        inner: dict[str, Any] = {
            "architecture": architecture["network"], "input_shape": (width - 1,)
        }  # fmt: skip
        return assemble(
            replace(definition, **inner),
            self._reader.source.newest(find_factories),
            tensors,
            trainable={entry.path.removeprefix(EACH): entry.trainable for entry in entries},
            reference=model.reference,
        )

    def _code(self, model: SavedModel, column: str, value: object) -> int:
        """Return a group's place among the rows of tensors."""
        decoding = None if model.dataset_id is None else self._decodings.get(model.dataset_id)
        if decoding is None and model.dataset_id is not None:
            dataset_id = model.dataset_id
            decoding = self._reader.source.newest(lambda c: find_decoding(c, dataset_id))
            self._decodings.put(dataset_id, decoding, 1)  # the cache counts datasets
        found = [c for c in decoding.columns if c.name == column] if decoding else []
        if not found or found[0].transform is None:
            raise InvalidInput(
                f"The groups of model {model.reference} are not known.",
                hint="It has no dataset; recover all of it, and take network.of(code).",
            )
        if value is None:
            return found[0].transform.code(None)
        if isinstance(value, list | tuple | dict | bytes):
            raise InvalidInput(f"A group is {show(value)}.", hint="It is a text, or a number.")
        is_truth = isinstance(value, bool | np.bool_)
        return found[0].transform.code(str(value).lower() if is_truth else str(value))
