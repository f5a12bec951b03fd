"""A process that follows a log until it is killed: `python -m tests.store.follow_forever LOG VIEWS`."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from headrace.log.local.client import LocalClient
from headrace.store.follow import Followers
from headrace.store.sqlite import SqliteStore
from tests.store.changelog import COUNTS
from tests.store.project import View


def main() -> None:
    log, views = Path(sys.argv[1]), Path(sys.argv[2])
    followers = Followers(LocalClient(log), SqliteStore(views))
    followers.sync([View("COUNTS", 1, "counts")], {"COUNTS": COUNTS}.get)
    print("following", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
