"""`POST /v1/topics/{topic}/events` without the routing."""
