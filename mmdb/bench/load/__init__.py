"""`mmdb bench load`: predictors, readers and savers beside a run that is trained."""
