"""Lineage as a drawn graph: folding, layout and SVG. Pure: edges in, text out."""
