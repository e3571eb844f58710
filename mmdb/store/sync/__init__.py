"""Models from one database into another."""
