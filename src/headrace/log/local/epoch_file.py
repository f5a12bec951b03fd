"""The file `epochs` in the log's folder: see `headrace.log.epochs`."""

from __future__ import annotations

import logging
from pathlib import Path

from headrace.log.epochs import Epochs, begin_first, decode_epochs, encode_epochs
from headrace.log.local.files import replace_file

FILE = "epochs"

logger = logging.getLogger(__name__)


def read_epochs(folder: Path) -> Epochs | None:
    """Return the log's epochs; None if it has none yet, or if the file is damaged."""
    try:
        return decode_epochs((folder / FILE).read_bytes())
    except FileNotFoundError:
        return None


def epochs_stamp(folder: Path) -> tuple[int, int]:
    """Return what is another value once the file was replaced."""
    try:
        found = (folder / FILE).stat()
    except FileNotFoundError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_ino)


def begin_epoch(folder: Path, next_arrival: int) -> Epochs:
    """Begin an epoch, durably, before anything is committed in it. Epochs that begin behind the log's end are not of
    this log: its other files were restored without this one."""
    known = read_epochs(folder)
    if known is not None:
        there = tuple(epoch for epoch in known.known if epoch.start <= next_arrival)
        known = Epochs(there) if there else None
    if known is None and (folder / FILE).exists():
        logger.error("`%s` does not fit the log: positions outside of the log will be refused", folder / FILE)
    epochs = begin_first() if known is None else known.begin(next_arrival)
    replace_file(folder / FILE, encode_epochs(epochs))
    return epochs
