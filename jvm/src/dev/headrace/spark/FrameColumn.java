package dev.headrace.spark;

import org.apache.arrow.vector.FieldVector;
import org.apache.arrow.vector.VarCharVector;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * A column of a frame as Spark sees it. Spark closes columns when it has read them; the bytes are the reader's.
 * Numbers, truth values (every query asks each row whether it is a tombstone) and texts, which most columns are, are read
 * straight from memory: the bytes were checked when they were loaded.
 */
final class FrameColumn extends ArrowColumnVector {
  private final boolean noNulls;
  private final long values;
  private final long offsets;

  FrameColumn(FieldVector vector, StructField asked) {
    super(vector);
    if (!dataType().sameType(asked.dataType())) {
      throw LogException.usage(
          "column `%s` is asked for as %s, the topic has %s"
              .formatted(asked.name(), asked.dataType().sql(), dataType().sql()));
    }
    this.noNulls = vector.getNullCount() == 0;
    boolean flat = vector.getField().getChildren().isEmpty();
    this.values = flat ? vector.getDataBufferAddress() : 0;
    this.offsets = vector instanceof VarCharVector ? vector.getOffsetBufferAddress() : 0;
  }

  @Override
  public boolean isNullAt(int row) {
    return !noNulls && super.isNullAt(row);
  }

  @Override
  public long getLong(int row) {
    return Platform.getLong(null, values + 8L * row);
  }

  @Override
  public int getInt(int row) {
    return Platform.getInt(null, values + 4L * row);
  }

  @Override
  public double getDouble(int row) {
    return Platform.getDouble(null, values + 8L * row);
  }

  @Override
  public boolean getBoolean(int row) {
    return (Platform.getByte(null, values + (row >> 3)) >> (row & 7) & 1) == 1;
  }

  @Override
  public UTF8String getUTF8String(int row) {
    if (isNullAt(row)) {
      return null;
    }
    int start = Platform.getInt(null, offsets + 4L * row);
    int end = Platform.getInt(null, offsets + 4L * row + 4);
    return UTF8String.fromAddress(null, values + start, end - start);
  }

  @Override
  public void close() {}
}
