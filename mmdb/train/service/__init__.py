"""Training as a service: runs are handed to worker processes, which share their slots fairly."""
