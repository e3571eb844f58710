"""Where a forward is, and where it failed."""

from __future__ import annotations

from dataclasses import dataclass

from mmdb.graph.flow.untraceable import CannotTrace


@dataclass(slots=True)
class Place:
    """The path of the innermost module that runs."""

    path: str = ""
    _failure: tuple[BaseException, str, str] | None = None  # error, operation, path

    def note(self, error: BaseException, operation: str = "forward") -> None:
        """Keep where an error was raised; what it passes on its way out changes nothing."""
        if self._failure is None or self._failure[0] is not error:
            self._failure = error, operation, self.path

    def error(self, error: BaseException) -> CannotTrace:
        """Return what to raise for an error that ended the forward."""
        if isinstance(error, CannotTrace):
            return error
        found = self._failure
        _, operation, path = found if found and found[0] is error else (error, "forward", "")
        lines = str(error).strip().splitlines() or [""]
        reason = f"{type(error).__name__}: {lines[0]}"[:300]
        text = str(error).lower()
        no_values = isinstance(error, NotImplementedError) or "meta" in text or "unalloc" in text
        return CannotTrace(reason, operation=operation, path=path, wants_values=no_values)
