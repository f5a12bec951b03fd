package dev.headrace.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Path;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** Makes the readers of tasks. Travels to them, so it holds only what can. */
record RangeReaderFactory(String logFolder, String topic, StructType schema, List<String> clock, Long minLag)
    implements PartitionReaderFactory {
  @Override
  public boolean supportColumnarReads(InputPartition partition) {
    return true;
  }

  @Override
  public PartitionReader<ColumnarBatch> createColumnarReader(InputPartition partition) {
    try {
      Path folder = Path.of(logFolder);
      RangeReader reader =
          new RangeReader(TopicDefinition.load(folder, topic), (OffsetRange) partition, schema, minLag);
      return wantsClock() ? new ClockedReader(reader, schema, clocks(folder)) : reader;
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** A batch whose stream times nobody looks at does not have them. */
  private boolean wantsClock() {
    return !clock.isEmpty() && List.of(schema.fieldNames()).contains(TopicDefinition.STREAM_TIME);
  }

  private List<TopicClock> clocks(Path folder) {
    return clock.stream().map(other -> new TopicClock(folder, other)).toList();
  }

  @Override
  public PartitionReader<InternalRow> createReader(InputPartition partition) {
    throw new UnsupportedOperationException("the log is read by columns");
  }
}
