package dev.headrace.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/** The stream time of a topic at arrival numbers that grow: the largest event time of what arrived before. */
final class TopicClock implements Closeable {
  private static final int ARRIVAL = 0;
  private static final int STREAM_TIME = 1;
  private static final int TIME = 2;
  private static final StructType COLUMNS =
      new StructType()
          .add(TopicDefinition.ARRIVAL, DataTypes.LongType, false)
          .add(TopicDefinition.STREAM_TIME, DataTypes.LongType, false)
          .add(TopicDefinition.TIME, DataTypes.LongType, false);

  private final Path logFolder;
  private final TopicDefinition topic;
  private List<Times> partitions;
  private boolean known;
  private long now = -1;

  TopicClock(Path logFolder, String topic) {
    this.logFolder = logFolder;
    this.topic = TopicDefinition.load(logFolder, topic);
  }

  /** The topic's stream time for something that arrives with this number. */
  long before(long arrival) throws IOException {
    if (partitions == null) {
      open(arrival);
    }
    for (Times times : partitions) {
      while (times.there && times.get(ARRIVAL) < arrival) {
        now = Math.max(now, Math.max(times.get(STREAM_TIME), times.get(TIME)));
        known = true;
        times.advance();
      }
    }
    return known ? now : ofTheNext();
  }

  /** What was before is not in the log any more, or nothing was: the next record knows, whose stamp it is in. */
  private long ofTheNext() {
    Times next = null;
    for (Times times : partitions) {
      if (times.there && (next == null || times.get(ARRIVAL) < next.get(ARRIVAL))) {
        next = times;
      }
    }
    return next == null ? -1 : next.get(STREAM_TIME);
  }

  /** From the last record of each partition that arrived before: the latest of them knows all times before it. */
  private void open(long arrival) throws IOException {
    PartitionEnds[] ends = new StableFile(logFolder).read().ends(topic);
    partitions = new ArrayList<>();
    for (int partition = 0; partition < ends.length; partition++) {
      long at = ArrivalSearch.offsetAt(topic, partition, ends[partition], arrival);
      long from = Math.max(ends[partition].start(), at - 1);
      if (from < ends[partition].end()) {
        partitions.add(new Times(new OffsetRange(partition, from, ends[partition].end())));
      }
    }
  }

  /** One partition's times, one record after the other. */
  private final class Times {
    private final RangeReader reader;
    private ColumnarBatch batch;
    private int row;
    private boolean there = true;

    Times(OffsetRange range) throws IOException {
      reader = new RangeReader(topic, range, COLUMNS, null);
      advance();
    }

    long get(int column) {
      return batch.column(column).getLong(row);
    }

    void advance() throws IOException {
      row++;
      if (batch == null || row >= batch.numRows()) {
        there = reader.next();
        batch = there ? reader.get() : null;
        row = 0;
      }
    }
  }

  @Override
  public void close() throws IOException {
    if (partitions != null) {
      for (Times times : partitions) {
        times.reader.close();
      }
    }
  }
}
