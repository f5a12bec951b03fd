"""Questions: pull queries that group, join, rank, or read a range, evaluated over rows in chunks."""
