"""Tensors as rows: hashed, cut into chunks, encoded and decoded."""
