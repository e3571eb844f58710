"""A saved model, whose tensors are read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from mmdb.errors import TensorNotFound

if TYPE_CHECKING:  # these load torch, which takes a second; a session may never need it
    import torch

    from mmdb.graph.trace.structure import Architecture
    from mmdb.store.models.model_rows import SavedModel
    from mmdb.store.models.recover import ModelReader


@dataclass(frozen=True)
class Model:
    """A saved model."""

    _reader: ModelReader
    _saved: SavedModel

    @property
    def reference(self) -> str:
        """The model as `name@version`."""
        return self._saved.reference

    @property
    def approach(self) -> str:
        """How it is kept: snapshot, update or provenance."""
        return self._saved.approach

    @cached_property
    def architecture(self) -> Architecture:
        """Its operations and what each reads, as they are stored: without paths of modules.

        Raises:
            DefinitionMissing: it is not known.
        """
        from mmdb.store.models.architectures import saved_architecture

        return self._reader.source.newest(lambda session: saved_architecture(session, self._saved))

    @cached_property
    def tensors(self) -> Tensors:
        """Its tensors by path."""
        return Tensors(self._reader, self._saved)

    def _repr_html_(self) -> str:
        from mmdb.report.notebook import html_or_error, model_html

        return html_or_error(
            lambda: model_html(self._saved, self._reader.catalog(self._saved).entries)
        )


class Tensors(Mapping[str, "torch.Tensor"]):
    """A state dict whose tensors are read when they are asked for, each time anew."""

    def __init__(self, reader: ModelReader, model: SavedModel) -> None:
        self._reader, self._model = reader, model

    def __getitem__(self, path: str) -> torch.Tensor:
        try:
            return self._reader.tensors(self._model, [path])[path]
        except TensorNotFound as error:
            raise KeyError(path) from error

    def __iter__(self) -> Iterator[str]:
        return (
            entry.path
            for entry in self._reader.catalog(self._model).entries
            if entry.kind in ("parameter", "buffer")
        )

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def rows(self, path: str, lo: int, hi: int) -> torch.Tensor:
        """Return rows lo..hi of a tensor; no chunk is read that has none of them.

        Raises:
            TensorNotFound, CorruptTensor
        """
        return self._reader.rows(self._model, path, lo, hi)
