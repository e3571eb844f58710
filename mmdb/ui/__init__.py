"""Reports in a browser, live: runs, models and lineage, for whoever may read them."""
