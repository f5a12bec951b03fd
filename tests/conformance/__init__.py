"""Runs files of KSQL conformance cases against the real engine: `make conformance CASES=path.jsonl`."""
