"""How much of one architecture is in another, and which layer stands for which. Pure."""
