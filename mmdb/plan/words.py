"""How a note of a plan on features begins."""

from __future__ import annotations

#: A note that begins so says what is shared, and warns of nothing.
FEATURES = "Features of "
