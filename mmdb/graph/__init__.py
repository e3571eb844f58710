"""Architectures: shipped factories, layer graphs in JSON, and modules built from either."""
