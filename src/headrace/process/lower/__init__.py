"""Plans → DataFrames, one operator per file. `lower.lower_query` puts them together."""
