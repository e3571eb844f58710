"""How a user writes an architecture, and the module that it becomes."""
