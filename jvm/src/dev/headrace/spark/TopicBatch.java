package dev.headrace.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/** Reads a bounded range of a topic once. What `latest` means is fixed when the batch is made. */
final class TopicBatch implements Batch {
  private final TopicScan scan;
  private final RangePlanner planner;
  private final LogMoment moment;

  TopicBatch(TopicScan scan, RangePlanner planner) {
    this.scan = scan;
    this.planner = planner;
    this.moment = new StableFile(scan.options().path()).read();
  }

  @Override
  public InputPartition[] planInputPartitions() {
    OffsetParser offsets = new OffsetParser(scan.topic(), moment);
    TopicOffset from = offsets.parse(scan.options().startingOffsets());
    TopicOffset to = offsets.parse(scan.options().endingOffsets());
    try {
      PartitionEnds[] ends = moment.ends(scan.topic());
      return planner.plan(ends, from.offsets(ends.length), to.offsets(ends.length));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return scan.readerFactory();
  }
}
