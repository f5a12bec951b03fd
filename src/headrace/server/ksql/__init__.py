"""ksqlDB's REST API, so that its clients work unmodified: `/ksql`, `/query`, `/query-stream` and the rest, over
HTTP/1.1 and cleartext HTTP/2."""
