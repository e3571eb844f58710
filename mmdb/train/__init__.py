"""Runs, candidates, hops and the driver that moves them."""
