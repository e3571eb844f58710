"""Compilation of numeric loops, kept on disk between processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def compiled(function: F) -> F:
    """Return a function compiled for the types that it is first called with.

    The result is kept beside the source, or in the user's folder of caches; where neither can be
    written, each process compiles anew.
    """
    try:
        made = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no folder to keep it in
        made = numba.njit(nogil=True, error_model="numpy")(function)
    return cast(F, made)
