"""Runs as event files for TensorBoard."""

from mmdb.standards.tensorboard.export import export_tensorboard

__all__ = ["export_tensorboard"]
