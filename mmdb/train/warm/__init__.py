"""Candidates that begin with a parent's tensors, and modules outside of runs that do."""
