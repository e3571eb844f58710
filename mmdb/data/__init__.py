"""Datasets: from a query to packed, shuffled partitions, and back to arrays."""
