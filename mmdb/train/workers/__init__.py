"""Workers: long-lived sessions that do the hops they are given."""
