"""Driving runs: the only loop with I/O, and the rows that runs are made of."""
