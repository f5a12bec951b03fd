"""What functions make: each is a row of the topic or a dead letter, whatever it is."""

from __future__ import annotations

import json
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinate.attached_worker import letter_of, output_batch
from headrace.functions.attach import Attached
from headrace.functions.batches import Caller, Rejected
from headrace.functions.compiled import Limits
from headrace.functions.describe import describe
from headrace.functions.files import FunctionFile
from headrace.log.base import Topic, TopicSpec
from headrace.log.dead_letters import bury, letter_id
from headrace.types import BIGINT, VARCHAR, Column, Decimal

TYPED = Topic(
    1, TopicSpec("made", key=(Column("K", VARCHAR),), value=(Column("N", BIGINT), Column("D", Decimal(9, 2)))), ()
)
ANY = st.binary(max_size=40) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["k", "n", "d", "$id", "x"]), inner),
).map(lambda value: json.dumps(value).encode())
POISON = [
    b'{"n": "\xff"}',
    b'{"n": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    b'{"n": 99999999999999999999}',
    b'{"d": 1e99999999999999999999}',
    b"",
]


def fates(values: list[bytes]) -> tuple[int, list[str]]:
    batch, letters = output_batch(TYPED, [(None, value, False) for value in values], 0, "function-f")
    assert not letters or bury(letters).batch.num_rows == len(letters)
    return (0 if batch is None else batch.num_rows), [letter.reason for letter in letters]


@pytest.mark.parametrize("value", POISON, ids=["utf-8", "deep", "large", "exponent", "empty"])
def test_what_does_not_fit_is_a_letter_and_the_rest_is_written(value: bytes) -> None:
    written, [reason] = fates([b'{"k": "a", "n": 1}', value, b'{"k": "b", "n": 2}'])
    assert (written, bool(reason)) == (2, True)


@given(st.lists(ANY, max_size=6))
def test_anything_made_is_a_row_or_a_letter(values: list[bytes]) -> None:
    written, reasons = fates(values)
    assert written + len(reasons) == len(values)


RAISES = """
from headrace import on_topic

@on_topic("clicks", retries=0)
def quotes(records):
    raise ValueError("no " + records[0].value.decode("utf-8", "surrogateescape"))
"""


def test_an_error_may_quote_what_is_no_text() -> None:
    """Half a character in the reason kept the letter from being written, and the function from going on."""
    file = describe(FunctionFile("functions/a.py", RAISES))[0]
    [attached] = file.attached
    caller = Caller(file, attached, True, Limits(20.0), lambda: None)
    try:
        [rejected] = caller.work([(0, 7, 1000, "id", None, b"\xff", {})], Event()).rejected
    finally:
        caller.close()
    letter = letter_of(Attached("quotes", "quotes"), "clicks", *rejected)
    assert bury([letter]).batch.column("REASON").to_pylist() == [
        r"function `quotes` failed: ValueError: no \udcff (functions/a.py line 6)"
    ]


def test_two_functions_that_fail_for_one_record_have_a_letter_each() -> None:
    rejected = Rejected((0, 7, 1000, "id", None, b"value", {}), "no")
    letters = [letter_of(Attached(name, name), "clicks", *rejected) for name in ("one", "other", "one")]
    first, second, again = map(letter_id, letters)
    assert first == again != second
