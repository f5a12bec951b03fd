"""Functions over strings. Spark counts characters as Python does, in code points."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F

from headrace.process.functions.arguments import Arguments, Lowering
from headrace.types import Bytes

# What Java's String.trim removes.
BLANK = "".join(map(chr, range(33)))
LONGEST = 2**24


def _substring(of: Arguments) -> Column:
    text, position = of[0], of[1]
    from_end = F.greatest(F.char_length(text) + position, F.lit(0)) + 1
    start = F.when(position < 0, from_end).otherwise(F.greatest(position, F.lit(1)))
    # `greatest` passes over nulls; the result of a null must be null.
    start = F.when(text.isNotNull() & position.isNotNull(), start)
    if len(of) == 2:
        return F.substr(text, start)
    return F.substr(text, start, F.when(of[2].isNotNull(), F.greatest(of[2], F.lit(0))))


def _concat_ws(of: Arguments) -> Column:
    return F.call_function("concat_ws", *of.columns)


def _replace(of: Arguments) -> Column:
    """Replacing nothing puts the replacement around every character, in Python and Java but not in Spark."""
    text, wanted, replacement = of.columns
    plain = F.replace(text, wanted, replacement)
    if of.literal(1):
        return plain
    around = F.concat(replacement, F.call_function("array_join", F.split(text, ""), replacement), replacement)
    return F.when(wanted == "", F.when(text == "", replacement).otherwise(around)).when(wanted.isNotNull(), plain)


def _split(of: Arguments) -> Column | None:
    delimiter = of.literal(1)
    if not isinstance(delimiter, str):
        return None
    if delimiter == "":
        return F.when(of[0] == "", F.array(F.lit(""))).otherwise(F.split(of[0], ""))
    return F.split(of[0], _quoted(delimiter))


def _quoted(text: str) -> str:
    """As a regular expression that matches the text and nothing else."""
    return "\\Q" + text.replace("\\E", "\\E\\\\E\\Q") + "\\E"


def _instr(of: Arguments) -> Column | None:
    if len(of) != 2:
        return None
    # Of a null there is nothing anywhere, and nothing at all is in no empty text.
    return F.when(of[0] == "", F.lit(0)).otherwise(F.coalesce(F.call_function("instr", of[0], of[1]), F.lit(0)))


def _pad(pad: str) -> Lowering:
    def lower(of: Arguments) -> Column:
        text, length, padding = of.columns
        possible = (length >= 0) & (length <= LONGEST) & (padding != "")
        return F.when(possible, F.call_function(pad, text, length, padding))

    return lower


def _length(of: Arguments) -> Column:
    return F.octet_length(of[0]) if isinstance(of.type(0), Bytes) else F.char_length(of[0])


def _plain(function: Callable[[Column], Column]) -> Lowering:
    return lambda of: function(of[0])


def _of_text(lower: Lowering) -> Lowering:
    """Over bytes Spark counts characters, or answers with text: those go to Python."""
    return lambda of: None if isinstance(of.type(0), Bytes) else lower(of)


LOWERINGS: dict[str, Lowering] = {
    "UCASE": _plain(F.upper),
    "LCASE": _plain(F.lower),
    "LEN": _length,
    "SUBSTRING": _of_text(_substring),
    "TRIM": lambda of: F.btrim(of[0], F.lit(BLANK)),
    "CONCAT": _of_text(lambda of: F.concat_ws("", *of.columns)),
    "CONCAT_WS": _of_text(_concat_ws),
    "REPLACE": _of_text(_replace),
    "SPLIT": _split,
    "INSTR": _instr,
    "LPAD": _of_text(_pad("lpad")),
    "RPAD": _of_text(_pad("rpad")),
}
