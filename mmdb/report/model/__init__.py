"""The report of a model: what is read of it, and a section from each part of that."""
