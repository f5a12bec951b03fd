"""Flume's model: agents of sources, channels and sinks, with transactions between them."""
