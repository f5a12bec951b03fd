"""AVRO: records with the id of their schema, as Confluent frames them.

What is read is read with its writer's schema and resolved to the reader's: the schema that is given, or the subject's
newest. Where the two mean different units by the same field (milliseconds and microseconds), the writer's word holds.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import UsageError
from headrace.log.codecs.avro_loading import AvroSchema, load_schema
from headrace.log.codecs.avro_reader import AvroReader
from headrace.log.codecs.avro_types import avro_schema
from headrace.log.codecs.avro_writer import AvroWriter
from headrace.log.codecs.base import Codec, Decoded, Encoded, FormatOptions, Schemas, Side, WriterSchema, decoded
from headrace.log.codecs.building import put_together
from headrace.log.codecs.framing import HEADER, UNFRAMED, Writers, frame, ids_of, newest_schema, unframed
from headrace.log.schema import arrow_type
from headrace.types import Column


class AvroCodec(Codec):
    def __init__(
        self,
        topic: str,
        columns: tuple[Column, ...],
        schemas: Schemas,
        side: Side = "value",
        options: FormatOptions | None = None,
    ) -> None:
        options = options or FormatOptions()
        self.columns = columns
        self.subject = f"{topic}-{side}"
        self._schemas, self._options = schemas, options
        self._wrapped = (side == "value" and options.wrap_single_value) or len(columns) != 1
        self._own = avro_schema(columns, self._wrapped, options.full_name)
        self._readers = Writers(schemas, self._reader)
        self._reader_schema: WriterSchema | None = None
        self._writer: tuple[int, AvroWriter] | None = None

    # Reading

    def decode(self, payloads: pa.Array) -> Decoded:
        payloads = payloads.cast(pa.binary())
        ids = ids_of(payloads)
        writers = np.unique(ids)
        if len(writers) == 1 and writers[0] >= 0:
            plan = self._readers.get(int(writers[0]))
            if not isinstance(plan, str):
                return plan.decode(payloads, HEADER)
        return self._decode_mixed(payloads, ids, [int(writer) for writer in writers])

    def _decode_mixed(self, payloads: pa.Array, ids: npt.NDArray[np.int64], writers: list[int]) -> Decoded:
        """Each writer's rows on their own, then put back in their order."""
        errors: dict[int, str] = {}
        batches: list[pa.RecordBatch] = []
        places = np.full(len(ids), -1, np.int64)
        start = 0
        for writer_id in writers:
            rows = np.flatnonzero(ids == writer_id)
            if writer_id == UNFRAMED:
                errors |= {int(row): unframed(payloads[int(row)].as_py()) for row in rows}
            if writer_id < 0:
                continue
            plan = self._readers.get(writer_id)
            if isinstance(plan, str):
                errors |= dict.fromkeys(map(int, rows), plan)
                continue
            part = plan.decode(payloads.take(pa.array(rows)), HEADER)
            errors |= {int(rows[row]): reason for row, reason in part.errors.items()}
            places[rows] = np.arange(start, start + len(rows))
            batches.append(part.batch)
            start += len(rows)
        arrays = {column.name: pa.nulls(len(ids), arrow_type(column.type)) for column in self.columns}
        if batches and self.columns:
            arrays = put_together(batches, pa.array(places, mask=places < 0))
        return decoded(self.columns, arrays, len(ids), dict(sorted(errors.items())))

    def _reader(self, written: WriterSchema) -> AvroReader:
        if written.type != "AVRO":
            raise UsageError(f"it is {written.type}, not AVRO")
        return AvroReader(
            self.columns,
            load_schema(written.text, written.references),
            self._resolution(written),
            self._wrapped,
        )

    def _resolution(self, written: WriterSchema) -> AvroSchema | None:
        """What to resolve to; None if that is what was written."""
        wanted = newest_schema(self._schemas, self.subject, "AVRO", self._options)
        if wanted is None or wanted.id == written.id:
            return None
        return load_schema(wanted.text, wanted.references)

    # Writing

    def prepare(self) -> None:
        self._writing()

    def encode(self, batch: pa.RecordBatch) -> Encoded:
        schema_id, plan = self._writing()
        return plan.encode(batch, frame(schema_id))

    def _writing(self) -> tuple[int, AvroWriter]:
        if self._writer is None:
            self._writer = self._choose_writer()
        return self._writer

    def _choose_writer(self) -> tuple[int, AvroWriter]:
        """The schema that is given; else the subject's newest if it can hold the columns; else one of our own."""
        newest = newest_schema(self._schemas, self.subject, "AVRO", self._options)
        if newest is not None:
            try:
                schema = load_schema(newest.text, newest.references)
                return newest.id, AvroWriter(self.columns, schema, self._wrapped)
            except UsageError:
                if self._options.schema_id is not None:
                    raise
        schema_id = self._schemas.register(self.subject, "AVRO", self._own)
        return schema_id, AvroWriter(self.columns, load_schema(self._own), self._wrapped)
