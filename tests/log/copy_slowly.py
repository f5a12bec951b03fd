"""`headrace log copy --to kafka` in very small chunks, so that a kill meets it anywhere:
python -m tests.log.copy_slowly FOLDER."""

from __future__ import annotations

import sys

from headrace.cli.main import main
from headrace.log.copy import copier

if __name__ == "__main__":
    copier.CHUNK_ROWS = 25
    sys.argv = ["headrace", "log", "copy", "--to", "kafka", "--project", sys.argv[1]]
    main()
