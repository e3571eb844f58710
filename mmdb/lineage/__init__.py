"""Lineage of models and datasets."""
