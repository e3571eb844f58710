"""A parent's tensors carried over to a child of another shape. Pure."""

from mmdb.graph.transfer.transfer import Origin, Transfer, transfer

__all__ = ["Origin", "Transfer", "transfer"]
