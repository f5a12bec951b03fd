"""Statements with something wrong in them: an error that points, or a tree; never a traceback, never a second.

python -m tests.sql.mutations --count 100000 --seed 7
"""

from __future__ import annotations

import argparse
import random
import sys
import time

from headrace.errors import SqlError
from headrace.sql.api import Draft, split, validate
from tests.sql.catalog import SHOP, shop
from tests.sql.test_parser import pairs

SEEDS = [written for name in ("statements", "expressions") for written, _ in pairs(name)]
PIECES = [
    "(", ")", "[", "]", "<", ">", ",", ";", "'", "`", '"', "--", "/*", "*/", "->", "=>", ":=", "${x}", "\0", "é", "\n",
    "SELECT", "FROM", "WHERE", "CASE", "END", "CAST", "NULL", "NOT", "AND", "STRUCT", "ARRAY", "MAP", "WINDOW",
    "GROUP BY", "1e999", "9" * 40, "COUNT(*)", "x => x", "DECIMAL(99,1)", "EMIT CHANGES", "LIMIT", "-", "AS",
]  # fmt: skip


def mutated(seed: str, generator: random.Random) -> str:
    text = seed
    for _ in range(generator.randint(1, 5)):
        at = generator.randint(0, len(text))
        match generator.randint(0, 3):
            case 0:
                text = text[:at] + generator.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + text[at + generator.randint(1, 8) :]
            case 2:
                other = generator.choice(SEEDS)
                text = text[:at] + other[generator.randint(0, len(other)) :]
            case _:
                text = text[:at] + " " + generator.choice(PIECES) + " " + text[at:]
    return text


def caught(text: str, catalog: Draft) -> SqlError | None:
    try:
        validate(text, catalog)
    except SqlError as error:
        return error
    return None


def try_mutations(count: int, seed: int) -> int:
    """How many of them were refused. An assertion names the text that was not taken well."""
    generator = random.Random(seed)
    catalog = shop()
    refused = 0
    for number in range(count):
        seeded = SEEDS[number % len(SEEDS)] if number % 3 else SHOP
        refused += try_one(mutated(seeded, generator), catalog)
    return refused


def try_one(text: str, catalog: Draft) -> bool:
    began = time.thread_time()
    try:
        error = caught(text, catalog)
        pieces = split(text)
    except Exception as unexpected:
        raise AssertionError(f"{unexpected!r}: {text}") from unexpected
    assert time.thread_time() - began < 1, text
    assert all(text[piece.start : piece.end] == piece.text for piece in pieces)
    if error is None:
        return False
    lines = text.split("\n")
    assert 1 <= error.line <= len(lines), text
    assert error.source_line == lines[error.line - 1].rstrip("\r"), text
    assert 1 <= error.column <= len(error.source_line) + 2, text
    assert error.message in str(error)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    refused = try_mutations(options.count, options.seed)
    print(f"{options.count} mutated statements: {refused} refused with an error that points, the others understood")
    return 0


if __name__ == "__main__":
    sys.exit(main())
