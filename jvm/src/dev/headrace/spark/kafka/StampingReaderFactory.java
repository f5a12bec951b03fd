package dev.headrace.spark.kafka;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/** Makes the readers of a batch's tasks. `seen` collects how far time came in each partition; null if nobody asks. */
final class StampingReaderFactory implements PartitionReaderFactory {
  private static final long serialVersionUID = 1L;

  private final PartitionReaderFactory records;
  private final LatestTimes seen;

  StampingReaderFactory(PartitionReaderFactory records, LatestTimes seen) {
    this.records = records;
    this.seen = seen;
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    if (partition instanceof FloorPartition mark) {
      return new OneRow(new GenericInternalRow(new Object[] {mark.floor()}));
    }
    StampedRange range = (StampedRange) partition;
    return new StampingReader(records.createReader(range.range()), range, seen);
  }

  private static final class OneRow implements PartitionReader<InternalRow> {
    private final InternalRow row;
    private boolean given;

    OneRow(InternalRow row) {
      this.row = row;
    }

    @Override
    public boolean next() {
      boolean first = !given;
      given = true;
      return first;
    }

    @Override
    public InternalRow get() {
      return row;
    }

    @Override
    public void close() {}
  }
}
