"""The report of a run: what is read of it, and a section from each part of that."""
