"""Firehose: delivery streams that gather records in a topic and write them to files or to another topic."""
