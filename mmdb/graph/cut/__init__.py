"""Networks cut in two at a module: what is frozen before it, what trains after it."""
