"""Workloads, arms and savings of `mmdb bench warm`: training from a parent beside a cold start."""
