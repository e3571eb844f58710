"""All views as Parquet files, for tools that cannot open the database."""
