"""Moving a log to another place: all topics, each record once, and a map from old offsets to new ones."""
