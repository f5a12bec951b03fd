"""Schemas of topics, with versions: Confluent's registry, kept in the log."""
