"""Hops as a worker performs them: orders, turns, states, rows."""
