"""Traces a module's forward; the architecture that follows, with hashes."""
