"""Runs and models, copied into an MLflow tracking server."""
