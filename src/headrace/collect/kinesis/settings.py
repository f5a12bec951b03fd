"""A stream's own rules, in `collectors/NAME.toml`; without a file it has none."""

from __future__ import annotations

from headrace.collect.definitions import CollectorSettings


class KinesisStreamSettings(CollectorSettings, frozen=True, kw_only=True):
    shard_records_per_second: float = 0
    """Records a second that one shard takes; more are answered with `ProvisionedThroughputExceededException`. 0 is no
    limit; Kinesis's own is 1000."""
    shard_bytes_per_second: float = 0
    """The same in bytes. Kinesis's own is 1048576."""
