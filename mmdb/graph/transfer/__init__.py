"""A parent's tensors carried over to a child of another shape. Pure."""

from mmdb.graph.transfer.transfer import Origin, TensorTransfer, transfer
from mmdb.graph.transfer.verification import difference

__all__ = ["Origin", "TensorTransfer", "difference", "transfer"]
