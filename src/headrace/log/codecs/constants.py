"""Arrow scalars for module level. `pa.scalar` looks for pandas, which costs whoever imports the module a second; and a
plain Python value in a call of `pyarrow.compute` becomes a scalar each time."""

from __future__ import annotations

import struct

import pyarrow as pa


def constant(value: int | str | bytes) -> pa.Scalar:
    """
    >>> constant("null"), constant(1000)
    (<pyarrow.StringScalar: 'null'>, <pyarrow.Int64Scalar: 1000>)
    """
    if isinstance(value, int):
        return pa.Array.from_buffers(pa.int64(), 1, [None, pa.py_buffer(struct.pack("=q", value))])[0]
    data = value.encode() if isinstance(value, str) else value
    kind = pa.string() if isinstance(value, str) else pa.binary()
    offsets = pa.py_buffer(struct.pack("=ii", 0, len(data)))
    return pa.Array.from_buffers(kind, 1, [None, offsets, pa.py_buffer(data)])[0]
