"""Reports: what the views say of a run, as sections of charts and tables, and their files."""
