"""Plain values and small helpers that the rest of train builds on."""
