"""The tests of mmdb, and the throw-away PostgreSQL that they run on."""
