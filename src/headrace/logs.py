"""What our processes write about themselves, to standard error."""

from __future__ import annotations

import logging
import sys


def start_logging() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    # A line for every request would hide all others, and each has the whole address: with password and key.
    for client in ("httpx", "httpcore"):
        logging.getLogger(client).setLevel(logging.WARNING)
