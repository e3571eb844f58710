"""The views as a dbt source."""
