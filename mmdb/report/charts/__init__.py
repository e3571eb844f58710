"""Charts as Vega-Lite specifications. Pure: rows in, a specification out."""
