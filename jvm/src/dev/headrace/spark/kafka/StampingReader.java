package dev.headrace.spark.kafka;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Gives each record the largest event time that was before it in its partition, and the one that is reached with it,
 * which orders records across partitions. A range is read in order of offsets by one task, so a running maximum is
 * enough, and it does not depend on where batches are cut.
 */
final class StampingReader implements PartitionReader<InternalRow> {
  /** Where Spark's source has them. */
  static final int PARTITION = 3;

  static final int OFFSET = 4;
  private static final int TIMESTAMP = 5;
  private static final int HEADERS = 7;
  private static final UTF8String STAMP = UTF8String.fromString("headrace-stream-time");

  private final PartitionReader<InternalRow> records;
  private final StampedRange range;
  private final LatestTimes seen;
  private final GenericInternalRow stamp = new GenericInternalRow(2);
  private final JoinedRow row = new JoinedRow();
  private int partition = -1;
  private long latest;

  StampingReader(PartitionReader<InternalRow> records, StampedRange range, LatestTimes seen) {
    this.records = records;
    this.range = range;
    this.seen = seen;
  }

  @Override
  public boolean next() throws IOException {
    while (records.next()) {
      InternalRow record = records.get();
      if (partition < 0) {
        partition = record.getInt(PARTITION);
        latest = range.times().getOrDefault(partition, -1L);
      }
      long before = Math.max(Math.max(latest, range.floor()), copied(record));
      long time = eventTime(record);
      latest = Math.max(latest, time);
      if (range.minLag() < 0 || before - time > range.minLag()) {
        stamp.setLong(0, before);
        stamp.setLong(1, latest);
        row.apply(record, stamp);
        return true;
      }
    }
    return false;
  }

  /** Spark's timestamps are microseconds; a record without a time has -1 milliseconds. */
  static long eventTime(InternalRow record) {
    return Math.max(0, Math.floorDiv(record.getLong(TIMESTAMP), 1000L));
  }

  /** What a record of another log was stamped with there; -1 if it is none. */
  private static long copied(InternalRow record) {
    if (record.numFields() <= HEADERS || record.isNullAt(HEADERS)) {
      return -1;
    }
    ArrayData headers = record.getArray(HEADERS);
    for (int at = headers.numElements() - 1; at >= 0; at--) {
      InternalRow header = headers.getStruct(at, 2);
      if (STAMP.equals(header.getUTF8String(0)) && !header.isNullAt(1)) {
        byte[] stamp = header.getBinary(1);
        return stamp.length == Long.BYTES ? ByteBuffer.wrap(stamp).getLong() : -1;
      }
    }
    return -1;
  }

  @Override
  public InternalRow get() {
    return row;
  }

  @Override
  public CustomTaskMetric[] currentMetricsValues() {
    return records.currentMetricsValues();
  }

  @Override
  public void close() throws IOException {
    if (seen != null && partition >= 0) {
      seen.add(partition, latest);
    }
    records.close();
  }
}
