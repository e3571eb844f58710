"""One forward, operation by operation, and the skeleton of its layers."""
