"""The fixtures of the log's contract, for every file here."""

from tests.contracts.logs import log, place

__all__ = ["log", "place"]
