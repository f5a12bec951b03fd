"""Functions over JSON. Those over URLs run in Python: Java's URLs refuse what browsers send."""

from __future__ import annotations

import re

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.process.functions.arguments import Arguments, Lowering

# Names and places only: Spark's paths also know wildcards. A name at the end: of a place that holds null Spark says
# `null`, as it does of one that holds that word.
PLAIN_PATH = re.compile(r"\$(?:\.[A-Za-z_]\w*|\[\d{1,9}\])*\.[A-Za-z_]\w*")


def _extract(of: Arguments) -> Column | None:
    path = of.literal(1)
    if not isinstance(path, str) or not PLAIN_PATH.fullmatch(path):
        return None
    return F.get_json_object(of[0], path)


LOWERINGS: dict[str, Lowering] = {"EXTRACTJSONFIELD": _extract}
