"""Which axes of a flow's tensors are one: what must be widened together. Pure."""
