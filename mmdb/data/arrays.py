"""Decoded rows: a partition as arrays, in memory or as .npy files that processes map."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mmdb.data.decoding import Decoding

#: float32 or int64 (n, *shape): one input's, or those of several by name.
Inputs = np.ndarray | dict[str, np.ndarray]
#: (n,) or (n, size), see `mmdb.data.decoding.Target`: one target's, or those of several in order.
#: Where rows are weighted, their weights come last.
Labels = np.ndarray | tuple[np.ndarray, ...]


class Decoded(NamedTuple):
    """Rows as a model takes them; one input and one target are plain arrays."""

    inputs: Inputs
    labels: Labels

    @property
    def plain(self) -> tuple[np.ndarray, np.ndarray]:
        """The arrays of the only input and the only target."""
        assert isinstance(self.inputs, np.ndarray)
        assert isinstance(self.labels, np.ndarray)
        return self.inputs, self.labels

    @property
    def input_arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays of the inputs in their order, however many there are."""
        return tuple(self.inputs.values()) if isinstance(self.inputs, dict) else (self.inputs,)

    @property
    def label_arrays(self) -> tuple[np.ndarray, ...]:
        """The arrays of the labels in the targets' order, however many there are."""
        return self.labels if isinstance(self.labels, tuple) else (self.labels,)


FORM = "form.json"


@contextmanager
def writing(folder: Path, decoding: Decoding, rows: int) -> Iterator[Callable[[Decoded], None]]:
    """Make the files of `rows` rows; yields what takes them, some at a time and in order."""
    names = None if decoding.is_one_input else [given.name for given in decoding.inputs]
    count = len(decoding.labels) + decoding.is_weighted
    labels = None if count == 1 else count
    write_form(folder, names, labels)
    kinds = [(np.dtype(given.dtype).str, given.shape) for given in decoding.inputs]
    kinds += [(label.dtype, label.shape) for label in decoding.labels]
    kinds += [("<f4", ())] if decoding.is_weighted else []
    with ExitStack() as stack:
        files = []
        places = _files("x", None if names is None else len(names)) + label_files(labels)
        for name, (dtype, shape) in zip(places, kinds, strict=True):
            file = writing_array(folder / name, dtype, (rows, *shape))
            files.append(stack.enter_context(file))

        def add(decoded: Decoded) -> None:
            arrays = (*decoded.input_arrays, *decoded.label_arrays)
            for file, array in zip(files, arrays, strict=True):
                file(array)

        yield add


@contextmanager
def writing_array(
    path: Path, dtype: str, shape: tuple[int, ...]
) -> Iterator[Callable[[np.ndarray], None]]:
    """Make the file of an array; yields what takes its rows, some at a time and in order."""
    with path.open("wb") as file:
        header = {"descr": dtype, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)

        def add(rows: np.ndarray) -> None:
            file.write(np.ascontiguousarray(rows).data)

        yield add


def write_form(folder: Path, names: list[str] | None, labels: int | None) -> None:
    """Write what several inputs are called and how many labels there are; None: one, plain."""
    if names is not None or labels is not None:
        (folder / FORM).write_text(json.dumps({"inputs": names, "labels": labels}))


def mapped(path_of: Callable[[str], Path]) -> Decoded:
    """Return the rows in files, mapped copy-on-write.

    Args:
        path_of: where the file of a name is.
    Raises:
        OSError, ValueError, EOFError: a file is missing or damaged.
    """
    names, labels = _form(path_of(FORM))
    x = [_open(path_of(name)) for name in _files("x", None if names is None else len(names))]
    y = [_open(path_of(name)) for name in label_files(labels)]
    if len({len(array) for array in (*x, *y)}) != 1:
        raise ValueError("The arrays have different numbers of rows.")
    inputs = x[0] if names is None else dict(zip(names, x, strict=True))
    return Decoded(inputs=inputs, labels=y[0] if labels is None else tuple(y))


def _form(path: Path) -> tuple[list[str] | None, int | None]:
    """Return the names of several inputs and the number of several labels."""
    try:
        form = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None, None
    match form:
        case {"inputs": list() | None as names, "labels": int() | None as labels}:
            return names, labels
    raise ValueError(f"{path} is damaged.")


def label_files(count: int | None) -> list[str]:
    """Return the names of the files of several labels; None: of one."""
    return _files("y", count)


def _files(letter: str, count: int | None) -> list[str]:
    if count is None:
        return [f"{letter}.npy"]
    return [f"{letter}{place}.npy" for place in range(count)]


def _open(path: Path) -> np.ndarray:
    array: np.ndarray = np.load(path, mmap_mode="c")
    assert isinstance(array, np.memmap)
    if path.stat().st_size != array.offset + array.nbytes:
        raise ValueError("The file is longer than its array.")
    return array
