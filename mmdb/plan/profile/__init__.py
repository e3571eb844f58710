"""What this machine and this database cost: measured where hops run, fitted, kept as rows."""
