"""What the child's tensors are made of. Pure."""
