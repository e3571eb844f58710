"""Where people's text goes, and values as they read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

#: What a terminal would obey, as a sign that can be seen: control characters, and those that turn
#: the direction of writing. Lines and tabs stay.
_SHOWN = {
    **{code: chr(0x2400 + code) for code in range(0x20) if code not in b"\n\t"},
    **dict.fromkeys([*range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "�"),
}


class SafeConsole(Console):
    """A console that shows the control characters of stored texts in place of obeying them."""

    def render_str(self, text: str, **style: Any) -> Text:
        """Return a text, before its width is measured."""
        return super().render_str(text.translate(_SHOWN), **style)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Yield what is printed, rich's own controls as they are."""
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else segment.text.translate(_SHOWN)
            yield Segment(text, segment.style, segment.control)


console = SafeConsole()
errors = SafeConsole(stderr=True)


def natural_width(console: Console, renderable: RenderableType) -> int:
    """Return the columns that something takes where there is room for it."""
    unlimited = console.options.update(width=1_000_000)
    return console.measure(renderable, options=unlimited).maximum


def value_text(value: Any) -> str:
    """Return a value, a number with four significant digits, a mapping as `key=value`."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e5 else f"{value:,.0f}"
    if isinstance(value, Mapping):
        return " ".join(
            value_text(v) if k == "name" else f"{k}={value_text(v)}" for k, v in value.items()
        )
    return str(value)
