package dev.headrace.spark.kafka;

import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/**
 * A range of one partition of a fork: what of it is in the original, then what is in the fork itself, either of which
 * may be null. One task reads both, in order of offsets, as {@link StampingReader} needs it.
 */
record ForkedRange(InputPartition original, InputPartition fork, long at) implements InputPartition {
  private static final long serialVersionUID = 1L;

  static InputPartition[] pair(InputPartition[] originals, InputPartition[] forks, ForkPoint point) {
    Map<Integer, ForkedRange> found = new TreeMap<>();
    for (InputPartition one : originals) {
      int partition = partition(one);
      found.put(partition, new ForkedRange(one, null, point.of(partition)));
    }
    for (InputPartition one : forks) {
      int partition = partition(one);
      ForkedRange before = found.get(partition);
      found.put(partition, new ForkedRange(before == null ? null : before.original(), one, point.of(partition)));
    }
    return found.values().toArray(InputPartition[]::new);
  }

  /** Spark's source, which is not compiled against, knows it of its ranges: it makes one of each partition. */
  private static int partition(InputPartition range) {
    try {
      Object offsets = range.getClass().getMethod("offsetRange").invoke(range);
      Object place = offsets.getClass().getMethod("topicPartition").invoke(offsets);
      return (int) place.getClass().getMethod("partition").invoke(place);
    } catch (ReflectiveOperationException error) {
      throw new IllegalStateException("Spark's Kafka source is not of a version that is known here", error);
    }
  }

  record Readers(PartitionReaderFactory original, PartitionReaderFactory fork) implements PartitionReaderFactory {
    private static final long serialVersionUID = 1L;

    @Override
    public PartitionReader<InternalRow> createReader(InputPartition partition) {
      return new Reader(this, (ForkedRange) partition);
    }
  }

  private static final class Reader implements PartitionReader<InternalRow> {
    private final Readers readers;
    private final ForkedRange range;
    private PartitionReader<InternalRow> records;
    private boolean forked;

    Reader(Readers readers, ForkedRange range) {
      this.readers = readers;
      this.range = range;
      this.records = range.original() == null ? null : readers.original().createReader(range.original());
    }

    @Override
    public boolean next() throws IOException {
      while (records == null || !records.next()) {
        if (forked || range.fork() == null) {
          return false;
        }
        close();
        records = readers.fork().createReader(range.fork());
        forked = true;
      }
      if (forked) {
        InternalRow record = records.get();
        record.setLong(StampingReader.OFFSET, range.at() + record.getLong(StampingReader.OFFSET));
      }
      return true;
    }

    @Override
    public InternalRow get() {
      return records.get();
    }

    @Override
    public CustomTaskMetric[] currentMetricsValues() {
      return records == null ? new CustomTaskMetric[0] : records.currentMetricsValues();
    }

    @Override
    public void close() throws IOException {
      if (records != null) {
        records.close();
      }
    }
  }
}
