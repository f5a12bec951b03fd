"""Kinesis as its clients know it: requests → operations of the log. A stream is a topic, a shard a partition."""
