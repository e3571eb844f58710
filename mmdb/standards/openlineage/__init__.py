"""Runs, datasets, models and predictions as OpenLineage events."""
