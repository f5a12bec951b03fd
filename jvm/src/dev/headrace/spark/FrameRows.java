package dev.headrace.spark;

import java.io.IOException;
import java.util.Arrays;
import java.util.Set;
import java.util.stream.LongStream;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.BigIntVector;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;

/** The rows of one frame: which of them arrived before a number, and at which offset the next one is. */
final class FrameRows {
  private final FrameHeader frame;
  private final long[] arrivals;
  private final long[] offsets;

  private FrameRows(FrameHeader frame, long[] arrivals, long[] offsets) {
    this.frame = frame;
    this.arrivals = arrivals;
    this.offsets = offsets;
  }

  /** Reads the frame only if its header does not say it all. */
  static FrameRows of(TopicDefinition topic, int partition, FrameHeader frame, BufferAllocator allocator)
      throws IOException {
    if (frame.arrivedInOnePiece() && !frame.hasOffsets()) {
      return new FrameRows(frame, null, null);
    }
    // By offsets, not by position: the segment may have been rewritten into other frames since the header was seen.
    try (FrameCursor cursor = new FrameCursor(
        topic.partition(partition), frame.baseOffset(), frame.endOffset(), allocator, FrameCursor.BODIES)) {
      LongStream arrivals = LongStream.empty();
      LongStream offsets = LongStream.empty();
      while (cursor.next()) {
        if (cursor.archived() != null) {
          long to = cursor.archivedUpTo();
          long[][] read = archived(topic.partition(partition), cursor, to);
          arrivals = LongStream.concat(arrivals, Arrays.stream(read[0]));
          offsets = LongStream.concat(offsets, Arrays.stream(read[1]));
          cursor.skipTo(to);
          continue;
        }
        FrameHeader piece = cursor.frame();
        try (FrameColumns columns = new FrameColumns(
            topic.schema(piece.schemaVersion()), piece.hasOffsets(), Set.of(TopicDefinition.ARRIVAL), allocator)) {
          columns.load(cursor.body());
          int first = columns.rowAtOffset(piece, frame.baseOffset());
          int last = columns.rowAtOffset(piece, frame.endOffset());
          arrivals = LongStream.concat(arrivals, Arrays.stream(longs(columns, TopicDefinition.ARRIVAL), first, last));
          offsets = LongStream.concat(
              offsets,
              piece.hasOffsets()
                  ? Arrays.stream(longs(columns, TopicDefinition.OFFSET), first, last)
                  : LongStream.range(piece.baseOffset() + first, piece.baseOffset() + last));
        }
      }
      return new FrameRows(frame, arrivals.toArray(), offsets.toArray());
    }
  }

  /** Arrival numbers and offsets of archived rows. */
  private static long[][] archived(PartitionFolder folder, FrameCursor cursor, long to) throws IOException {
    StructType schema =
        new StructType()
            .add(TopicDefinition.ARRIVAL, DataTypes.LongType)
            .add(TopicDefinition.OFFSET, DataTypes.LongType);
    LongStream.Builder arrivals = LongStream.builder();
    LongStream.Builder offsets = LongStream.builder();
    try (ArchiveReader reader = new ArchiveReader(folder, cursor.archived(), schema, cursor.wanted(), to)) {
      while (reader.next()) {
        ColumnVector arrival = reader.column(TopicDefinition.ARRIVAL);
        ColumnVector offset = reader.column(TopicDefinition.OFFSET);
        for (int row = 0; row < reader.rows(); row++) {
          arrivals.add(arrival.getLong(row));
          offsets.add(offset.getLong(row));
        }
      }
    }
    return new long[][] {arrivals.build().toArray(), offsets.build().toArray()};
  }

  private static long[] longs(FrameColumns columns, String name) {
    BigIntVector vector = (BigIntVector) columns.vector(name);
    long[] values = new long[vector.getValueCount()];
    for (int row = 0; row < values.length; row++) {
      values[row] = vector.get(row);
    }
    return values;
  }

  /** How many rows arrived before number `arrival`. */
  int below(long arrival) {
    if (arrivals == null) {
      return (int) Math.max(0, Math.min(frame.rows(), arrival - frame.firstArrival()));
    }
    return firstAtLeast(arrivals, arrival);
  }

  /** How many rows have an offset before `offset`. */
  int before(long offset) {
    if (offsets == null) {
      return (int) Math.max(0, Math.min(frame.rows(), offset - frame.baseOffset()));
    }
    return firstAtLeast(offsets, offset);
  }

  /** The offset of a row; of the one after the last, where the frame ends. */
  long offset(int row) {
    // Not the header's number of rows: compaction may have taken some since it was read.
    if (row >= (offsets == null ? frame.rows() : offsets.length)) {
      return frame.endOffset();
    }
    return offsets == null ? frame.baseOffset() + row : offsets[row];
  }

  private static int firstAtLeast(long[] growing, long wanted) {
    int found = Arrays.binarySearch(growing, wanted);
    return found >= 0 ? found : -found - 1;
  }
}
