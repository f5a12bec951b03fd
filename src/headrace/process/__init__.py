"""Plans on Spark: lowering, one operator per file; the query runner; the bridge to the JVM."""
