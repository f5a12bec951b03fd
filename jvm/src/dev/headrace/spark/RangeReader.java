package dev.headrace.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.ValueVector;
import org.apache.arrow.vector.util.TransferPair;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Reads a range of offsets as columns, one batch per frame. A batch is good until the next call of `next`. */
final class RangeReader implements PartitionReader<ColumnarBatch> {
  private final TopicDefinition topic;
  private final OffsetRange range;
  private final StructType schema;
  private final Long minLag;
  private final BufferAllocator allocator;
  private final FrameCursor cursor;
  private final Map<Integer, FrameColumns> columnsByVersion = new HashMap<>();
  private final List<ValueVector> slices = new ArrayList<>();
  private FrameColumns columns;
  private ColumnarBatch batch;
  private ArchiveReader archive;

  RangeReader(TopicDefinition topic, OffsetRange range, StructType schema, Long minLag) throws IOException {
    this.topic = topic;
    this.range = range;
    this.schema = schema;
    this.minLag = minLag;
    this.allocator = ArrowUtils.rootAllocator().newChildAllocator("headrace", 0, Long.MAX_VALUE);
    this.cursor =
        new FrameCursor(topic.partition(range.partition()), range.from(), range.to(), allocator, FrameCursor.BODIES);
  }

  @Override
  public boolean next() throws IOException {
    release();
    while (nextArchived() || cursor.next()) {
      if (archive != null) {
        batch = archivedBatch();
        return true;
      }
      FrameHeader frame = cursor.frame();
      if (cursor.archived() != null) {
        openArchive();
        continue;
      }
      if (minLag != null && frame.maxLag() <= minLag) {
        continue;
      }
      columns = columnsOf(frame);
      columns.load(cursor.body());
      int first = columns.rowAtOffset(frame, range.from());
      int last = columns.rowAtOffset(frame, range.to());
      if (first < last) {
        batch = batch(frame, first, last - first);
        return true;
      }
      release();
    }
    return false;
  }

  /** Whether there are more rows in the archived file that is open; closes it if not. */
  private boolean nextArchived() throws IOException {
    if (archive != null && !archive.next()) {
      archive.close();
      archive = null;
    }
    return archive != null;
  }

  /** Read the archived file that the cursor has come to, and let the cursor go on after it. */
  private void openArchive() throws IOException {
    long to = cursor.archivedUpTo();
    archive =
        new ArchiveReader(topic.partition(range.partition()), cursor.archived(), schema, cursor.wanted(), to);
    cursor.skipTo(to);
  }

  private ColumnarBatch archivedBatch() {
    ColumnVector[] vectors = new ColumnVector[schema.length()];
    for (int i = 0; i < vectors.length; i++) {
      vectors[i] = archive.column(schema.apply(i).name());
    }
    return new ColumnarBatch(vectors, archive.rows());
  }

  private FrameColumns columnsOf(FrameHeader frame) {
    int key = frame.schemaVersion() * 2 + (frame.hasOffsets() ? 1 : 0);
    return columnsByVersion.computeIfAbsent(
        key,
        unknown ->
            new FrameColumns(
                topic.schema(frame.schemaVersion()), frame.hasOffsets(), Set.of(schema.fieldNames()), allocator));
  }

  private ColumnarBatch batch(FrameHeader frame, int first, int rows) {
    ColumnVector[] vectors = new ColumnVector[schema.length()];
    for (int i = 0; i < vectors.length; i++) {
      StructField field = schema.apply(i);
      FieldVector vector = columns.vector(field.name());
      if (vector != null && !isEmpty(vector)) {
        vectors[i] = new FrameColumn(rows == frame.rows() ? vector : slice(vector, first, rows), field);
      } else if (field.name().equals(TopicDefinition.OFFSET)) {
        vectors[i] = new OffsetColumn(frame.baseOffset() + first);
      } else {
        vectors[i] = constant(field, rows);
      }
    }
    return new ColumnarBatch(vectors, rows);
  }

  /** Headers and the like: nothing in any row of most frames, which is then cheap to say. */
  private static boolean isEmpty(FieldVector vector) {
    return vector.getField().isNullable() && vector.getNullCount() == vector.getValueCount();
  }

  private ConstantColumnVector constant(StructField field, int rows) {
    ConstantColumnVector vector = new ConstantColumnVector(rows, field.dataType());
    if (field.name().equals(TopicDefinition.PARTITION)) {
      vector.setInt(range.partition());
    } else {
      vector.setNull();
    }
    return vector;
  }

  private FieldVector slice(FieldVector vector, int first, int rows) {
    TransferPair pair = vector.getTransferPair(vector.getField(), allocator);
    pair.splitAndTransfer(first, rows);
    FieldVector part = (FieldVector) pair.getTo();
    slices.add(part);
    return part;
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  /** Let go of the last frame, so that its memory, still in the processor's cache, takes the next one. */
  private void release() {
    slices.forEach(ValueVector::close);
    slices.clear();
    if (columns != null) {
      columns.clear();
      columns = null;
    }
  }

  @Override
  public void close() throws IOException {
    release();
    if (archive != null) {
      archive.close();
    }
    columnsByVersion.values().forEach(FrameColumns::close);
    cursor.close();
    allocator.close();
  }
}
