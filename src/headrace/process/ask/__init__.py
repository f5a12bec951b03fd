"""Questions on Spark: the plan that the server evaluates over rows, as one DataFrame over the log."""
