"""The database's side of a hop: whose turn it is, where its state is, and its row."""
