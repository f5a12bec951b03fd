package dev.headrace.spark;

import org.apache.arrow.vector.ValueVector;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.vectorized.ArrowColumnVector;

/** A column of a frame as Spark sees it. Spark closes columns when it has read them; the bytes are the reader's. */
final class FrameColumn extends ArrowColumnVector {
  FrameColumn(ValueVector vector, StructField asked) {
    super(vector);
    if (!dataType().sameType(asked.dataType())) {
      throw LogException.usage(
          "column `%s` is asked for as %s, the topic has %s"
              .formatted(asked.name(), asked.dataType().sql(), dataType().sql()));
    }
  }

  @Override
  public void close() {}
}
