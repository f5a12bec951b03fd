"""Queries over topics on Kafka: Spark's Kafka source, decoding, and a sink that commits in Kafka's transactions."""
