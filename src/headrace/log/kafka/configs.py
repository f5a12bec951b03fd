"""`TopicConfig` in Kafka's words, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headrace.config import KafkaSettings
from headrace.log.base import TopicConfig, TopicSpec

SMALLEST_SEGMENT = 1024 * 1024
"""Kafka has no smaller segments."""


def topic_configs(spec: TopicSpec, settings: KafkaSettings, retention: tuple[int, int]) -> dict[str, str]:
    """All that Headrace decides. What it leaves to the brokers is not there."""
    config = spec.config
    # Kafka forgets after a week unless it is told not to; for Headrace the log is the truth.
    general_ms, general_bytes = retention if spec.role == "events" and not spec.name.startswith("_") else (0, 0)
    keep_ms, keep_bytes = config.retention_ms or general_ms, config.retention_bytes or general_bytes
    policy = "delete" if not config.compacted else ("compact,delete" if keep_ms or keep_bytes else "compact")
    found = {
        "retention.ms": str(keep_ms or -1),
        "retention.bytes": str(keep_bytes or -1),
        "cleanup.policy": policy,
        "delete.retention.ms": str(config.tombstone_ms),
        "compression.type": "producer" if config.compression == "none" else config.compression,
        "message.timestamp.type": "CreateTime",
        # How far ahead an event may be is decided where it is collected.
        "message.timestamp.after.max.ms": str(2**63 - 1),
    }
    if config.segment_bytes:
        found["segment.bytes"] = str(max(config.segment_bytes, SMALLEST_SEGMENT))
    if least := config.min_insync or settings.min_insync:
        found["min.insync.replicas"] = str(least)
    return found


def topic_config(found: Mapping[str, str]) -> TopicConfig:
    """Of a topic somebody else made: what was set for it."""
    policy = found.get("cleanup.policy", "")
    compression: Any = found.get("compression.type", "")
    return TopicConfig(
        retention_ms=max(0, int(found.get("retention.ms", 0))),
        retention_bytes=max(0, int(found.get("retention.bytes", 0))),
        compacted="compact" in policy,
        tombstone_ms=int(found.get("delete.retention.ms", TopicConfig().tombstone_ms)),
        segment_bytes=int(found.get("segment.bytes", 0)),
        compression=compression if compression in ("lz4", "zstd") else "none",
        min_insync=int(found.get("min.insync.replicas", 0)),
    )
