"""Frames: what is written is read back, and no flipped bit goes unnoticed."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.log.local.frame import (
    ALIGNMENT,
    HEADER_SIZE,
    FrameHeader,
    decode_header,
    encode_batch,
    encode_frame,
    encode_slices,
    frame_body,
    frame_is_valid,
)

U16, U32, U64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
I64 = st.integers(-(2**63), 2**63 - 1)


@st.composite
def frames(draw: st.DrawFn) -> tuple[FrameHeader, bytes]:
    body = draw(st.binary(max_size=300))
    base = draw(st.integers(0, 2**63))
    header = FrameHeader(
        body_length=len(body),
        rows=draw(st.integers(1, 2**32 - 1)),
        base_offset=base,
        next_offset=base + draw(st.integers(1, 2**40)),
        first_arrival=draw(U64),
        last_arrival=draw(U64),
        min_time=draw(I64),
        max_time=draw(I64),
        max_lag=draw(I64),
        schema_version=draw(U32),
        producer=draw(U64),
        epoch=draw(U32),
        sequence=draw(U32),
        transaction=draw(U64),
        flags=draw(U16),
        compression=draw(U16),
    )
    return header, body


def encoded(header: FrameHeader, body: bytes) -> bytes:
    return b"".join(bytes(part) for part in encode_frame(header, pa.py_buffer(body)))


@given(frames())
def test_a_frame_is_read_back(frame: tuple[FrameHeader, bytes]) -> None:
    header, body = frame
    data = encoded(header, body)
    found = decode_header(data)
    assert found is not None
    assert len(data) == header.size
    assert len(data) % ALIGNMENT == 0
    buffer = pa.py_buffer(data)
    assert frame_is_valid(buffer, 0, found)
    assert frame_body(buffer, 0, found).to_pybytes() == body
    assert found._replace(crc=0) == header._replace(crc=0)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.sampled_from(["none", "lz4"]))
def test_several_batches_are_encoded_as_each_would_be(sizes: list[int], compression: str) -> None:
    edges = [0, *accumulate(sizes)]
    texts = [None if number % 3 == 0 else "x" * number for number in range(edges[-1])]
    batch = pa.record_batch({"n": pa.array(range(edges[-1]), pa.int64()), "s": pa.array(texts, pa.string())})
    expected = [encode_batch(batch.slice(first, last - first), compression) for first, last in pairwise(edges)]
    found = encode_slices(batch, edges, compression)
    assert [(body.to_pybytes(), number) for body, number in found] == [
        (body.to_pybytes(), number) for body, number in expected
    ]


@given(frames(), st.data())
def test_a_flipped_bit_is_noticed(frame: tuple[FrameHeader, bytes], data: st.DataObject) -> None:
    header, body = frame
    damaged = bytearray(encoded(header, body))
    bit = data.draw(st.integers(0, (HEADER_SIZE + len(body)) * 8 - 1))
    damaged[bit // 8] ^= 1 << bit % 8
    found = decode_header(bytes(damaged))
    assert found is None or not frame_is_valid(pa.py_buffer(bytes(damaged)), 0, found)


@given(frames(), st.data())
def test_a_cut_frame_is_noticed(frame: tuple[FrameHeader, bytes], data: st.DataObject) -> None:
    whole = encoded(*frame)
    cut = whole[: data.draw(st.integers(0, HEADER_SIZE + len(frame[1]) - 1))]
    found = decode_header(cut)
    assert found is None or not frame_is_valid(pa.py_buffer(cut), 0, found)


def test_the_layout_is_the_documented_one() -> None:
    header = FrameHeader(5, 2, 16, 18, 32, 33, 48, 56, 64, 96, 72, 80, 84, 88, 1, 0)
    data = encoded(header, b"hello")
    at = {8: 5, 12: 2, 16: 16, 24: 18, 32: 32, 40: 33, 48: 48, 56: 56, 64: 64, 72: 72, 80: 80, 84: 84, 88: 88, 96: 96}
    assert data[:4] == b"HRF1"
    assert {place: int.from_bytes(data[place : place + 4], "little") for place in at} == at
    assert (data[100], data[104:128], data[128:133], data[133:]) == (1, bytes(24), b"hello", bytes(59))
