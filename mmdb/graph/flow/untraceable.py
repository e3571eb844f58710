"""The errors of a module whose forward cannot be followed."""

from __future__ import annotations

#: A module of more operations is not followed.
MOST_OPERATIONS = 50_000


class CannotTrace(ValueError):
    """The forward of the module cannot be followed.

    Attributes:
        operation: aten's name of the operation that failed, "forward" where none did.
        path: of the module in whose forward it ran, "" for the root.
        wants_values: it reads the values of a tensor, and there are none on the meta device.
    """

    def __init__(
        self,
        reason: str,
        *,
        operation: str = "forward",
        path: str = "",
        wants_values: bool = False,
    ) -> None:
        where = f"module '{path}'" if path else "the module itself"
        super().__init__(f"cannot follow {operation} in {where}: {reason}")
        self.operation, self.path, self.wants_values = operation, path, wants_values


class TooManyOperations(CannotTrace):
    """The forward has more operations than are followed."""

    def __init__(self, *, operation: str, path: str) -> None:
        reason = f"the forward has more than {MOST_OPERATIONS:,} operations"
        super().__init__(reason, operation=operation, path=path)
