"""Where people's text goes: standard output, and standard error for errors."""

from rich.console import Console

console = Console()
errors = Console(stderr=True)
