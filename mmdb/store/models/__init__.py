"""Models as rows: saved, found, described and read back."""
