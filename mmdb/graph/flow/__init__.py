"""What a module computes, operation by operation, and the outline of its layers. Pure."""
