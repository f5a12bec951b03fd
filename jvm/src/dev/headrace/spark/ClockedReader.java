package dev.headrace.spark;

import java.io.IOException;
import java.util.List;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Gives the rows of a topic the stream time of several topics together: the largest event time that arrived before them
 * in any. Each task finds out by itself, from the other topics' times over the same stretch of arrival numbers, so that
 * nobody has to see all rows in order.
 */
final class ClockedReader implements PartitionReader<ColumnarBatch> {
  private final RangeReader own;
  private final List<TopicClock> others;
  private final int arrival;
  private final int streamTime;
  private ColumnarBatch batch;
  private OnHeapColumnVector stamps;

  /** `schema`, the reader's, has `$arrival` and `$stream_time`. */
  ClockedReader(RangeReader own, StructType schema, List<TopicClock> others) {
    this.own = own;
    this.others = others;
    this.arrival = schema.fieldIndex(TopicDefinition.ARRIVAL);
    this.streamTime = schema.fieldIndex(TopicDefinition.STREAM_TIME);
  }

  @Override
  public boolean next() throws IOException {
    if (!own.next()) {
      return false;
    }
    batch = stamped(own.get());
    return true;
  }

  private ColumnarBatch stamped(ColumnarBatch rows) throws IOException {
    ColumnVector[] columns = new ColumnVector[rows.numCols()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = rows.column(i);
    }
    columns[streamTime] = stamps(columns[arrival], columns[streamTime], rows.numRows());
    return new ColumnarBatch(columns, rows.numRows());
  }

  private ColumnVector stamps(ColumnVector arrivals, ColumnVector ownTimes, int rows) throws IOException {
    release();
    stamps = new OnHeapColumnVector(rows, DataTypes.LongType);
    for (int row = 0; row < rows; row++) {
      long time = ownTimes.getLong(row);
      for (TopicClock other : others) {
        time = Math.max(time, other.before(arrivals.getLong(row)));
      }
      stamps.putLong(row, time);
    }
    return stamps;
  }

  private void release() {
    if (stamps != null) {
      stamps.close();
    }
  }

  @Override
  public ColumnarBatch get() {
    return batch;
  }

  @Override
  public void close() throws IOException {
    release();
    for (TopicClock other : others) {
      other.close();
    }
    own.close();
  }
}
