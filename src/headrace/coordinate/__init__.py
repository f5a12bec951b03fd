"""Who runs what: catalog, statements, supervisor, engine."""
