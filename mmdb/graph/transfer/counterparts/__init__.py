"""Which parts of the parent stand behind those of the child. Pure."""
