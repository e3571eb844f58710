"""Metrics for Prometheus, and for whatever else scrapes its text."""
