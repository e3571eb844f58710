"""Models and tensors as rows."""
