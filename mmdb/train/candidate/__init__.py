"""What a candidate is: its configuration, with every name in it resolved. Pure."""
