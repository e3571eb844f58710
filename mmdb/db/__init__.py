"""Connections to PostgreSQL and DuckDB: the only code that opens one."""
