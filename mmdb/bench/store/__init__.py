"""`mmdb bench store`: models saved, recovered and read, beside files."""
