"""Candidates of one shape that train in one pass: their weights side by side in one tensor."""
