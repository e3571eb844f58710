"""Tensors that are read when they are asked for, so that a model need not fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

#: Bytes of tensors that are read at once; a larger tensor is read by itself.
BATCH_BYTES = 64 << 20

#: Reads the tensors of some paths.
Load = Callable[[Sequence[str]], Mapping[str, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class Spec:
    """What is known of a tensor before it is read."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Spec:
        """Return the spec of a tensor."""
        return cls(tensor.dtype, tuple(tensor.shape))

    @property
    def bytes(self) -> int:
        """Bytes of the elements."""
        return prod(self.shape) * self.dtype.itemsize


class LazyTensors(Mapping[str, torch.Tensor]):
    """A state dict whose tensors are read on access and not kept.

    Attributes:
        specs: dtype and shape by path, in the order of the state dict.
        tied: path to the path whose tensor it is; only the latter is read. Its tensor is kept
            once it was read, so that both paths give the very same one.
        metadata: what the source says beside its tensors.
        notes: what its reader decided, in words for the user.
        is_mapped: its tensors are views of mapped files: all of them can be held at once, and
            those that share memory in the file share it here.
    """

    def __init__(
        self,
        specs: Mapping[str, Spec],
        load: Load,
        *,
        tied: Mapping[str, str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        notes: Sequence[str] = (),
        is_mapped: bool = False,
    ) -> None:
        self.specs = specs
        self.tied = dict(tied or {})
        self.metadata = dict(metadata or {})
        self.notes = tuple(notes)
        self.is_mapped = is_mapped
        self._load = load
        self._kept: dict[str, torch.Tensor] = {}
        self._shared = frozenset(self.tied.values())

    @classmethod
    def holding(cls, tensors: Mapping[str, torch.Tensor], **more: Any) -> LazyTensors:
        """Return a mapping of tensors that are there already; the same views are tied."""
        first: dict[object, str] = {}
        tied = {
            path: first[view_key(tensor)]
            for path, tensor in tensors.items()
            if tensor.numel() and first.setdefault(view_key(tensor), path) != path
        }
        specs = {path: Spec.of(tensor) for path, tensor in tensors.items()}
        return cls(specs, lambda paths: {p: tensors[p] for p in paths}, tied=tied, **more)

    def renamed(self, names: Mapping[str, str]) -> LazyTensors:
        """Return the same tensors with some paths in place of others; two never become one."""
        paths = {names.get(path, path): path for path in self.specs}
        if not names or len(paths) < len(self.specs):
            return self
        tied = {names.get(path, path): names.get(first, first) for path, first in self.tied.items()}

        def load(wanted: Sequence[str]) -> dict[str, torch.Tensor]:
            read = self._load([paths[path] for path in wanted])
            return {path: read[paths[path]] for path in wanted}

        return LazyTensors(
            {path: self.specs[old] for path, old in paths.items()},
            load,
            tied=tied,
            metadata=self.metadata,
            notes=self.notes,
            is_mapped=self.is_mapped,
        )

    def __getitem__(self, path: str) -> torch.Tensor:
        path = self.tied.get(path, path)
        if path in self._kept:
            return self._kept[path]
        if path not in self.specs:
            raise KeyError(path)
        tensor = self._load([path])[path]
        if path in self._shared:
            self._kept[path] = tensor
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def __contains__(self, path: object) -> bool:
        return path in self.specs

    def read_many(self, paths: Sequence[str]) -> Mapping[str, torch.Tensor]:
        """Return the tensors of paths that are not tied to others, read in one go."""
        return self._load(paths)

    def all(self) -> dict[str, torch.Tensor]:
        """Return every tensor, read in one go: they share memory as the source says."""
        read = self._load([path for path in self.specs if path not in self.tied])
        return {path: read[self.tied.get(path, path)] for path in self.specs}

    def stream(self, paths: Sequence[str]) -> Iterator[tuple[str, torch.Tensor]]:
        """Yield the tensors of `paths` in that order, read in batches of BATCH_BYTES."""
        for batch in batches(self.specs, paths):
            tensors = dict(self._load(batch))
            for path in batch:
                yield path, tensors.pop(path)


def view_key(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return what tells a dense tensor from every other view of the same memory."""
    memory = tensor.untyped_storage().data_ptr()
    return memory, tensor.storage_offset(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def batches(
    specs: Mapping[str, Spec], paths: Sequence[str], limit: int = BATCH_BYTES
) -> Iterator[list[str]]:
    """Split `paths` into runs whose tensors hold at most `limit` bytes, or a single tensor.

    >>> specs = {p: Spec(torch.float32, (n,)) for p, n in zip("abcd", (1, 2, 9, 1))}
    >>> list(batches(specs, "abcd", limit=12))
    [['a', 'b'], ['c'], ['d']]
    """
    batch: list[str] = []
    size = 0
    for path in paths:
        if batch and size + specs[path].bytes > limit:
            yield batch
            batch, size = [], 0
        batch.append(path)
        size += specs[path].bytes
    if batch:
        yield batch
