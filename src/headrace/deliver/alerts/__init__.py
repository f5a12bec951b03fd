"""Alerts: what somebody should be told about, from `alerts/*.toml`; who is told, and whether they took it."""
