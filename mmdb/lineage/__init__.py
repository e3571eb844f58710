"""Lineage: what came from what, walked level by level over the edges that the views give."""
