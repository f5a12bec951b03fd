"""The local log: one owner process, segment files, a socket (docs/log-format.md)."""

from headrace.log.local.open import LocalClient, LocalLog, open_log

__all__ = ["LocalClient", "LocalLog", "open_log"]
