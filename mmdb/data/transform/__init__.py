"""What a column of raw values becomes: fitted on the train rows, applied wherever rows are read."""
