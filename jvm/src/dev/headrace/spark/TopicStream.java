package dev.headrace.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/**
 * A topic as a stream of micro-batches. How far a batch goes is decided by the group of sources it belongs to, so
 * that all inputs of a query end at one arrival number.
 */
final class TopicStream implements MicroBatchStream, SupportsTriggerAvailableNow, ReportsSourceMetrics {
  private final TopicScan scan;
  private final RangePlanner planner;
  private final CutGroup group;
  private TopicDefinition topic;

  TopicStream(TopicScan scan, RangePlanner planner, CutGroup group) {
    this.scan = scan;
    this.topic = scan.topic();
    this.planner = planner;
    this.group = group;
    group.join(this);
  }

  private synchronized TopicDefinition topic() {
    return topic;
  }

  /** The topic with all partitions that it has at a moment: some may have been split off. */
  synchronized TopicDefinition topic(LogMoment moment) {
    if (moment.partitions(topic) > topic.partitions()) {
      topic = topic.reload();
    }
    return topic;
  }

  long maxRowsPerTrigger() {
    return scan.options().maxRowsPerTrigger();
  }

  /** The arrival number at which a batch has to end. */
  long stopAt() {
    return scan.options().stopAt();
  }

  boolean closes() {
    return scan.options().closes();
  }

  /** Before the first record nothing waits. */
  @Override
  public TopicOffset initialOffset() {
    LogMoment moment = group.firstMoment();
    return new OffsetParser(topic(moment), moment).parse(scan.options().startingOffsets()).closed(closes());
  }

  @Override
  public TopicOffset deserializeOffset(String json) {
    return TopicOffset.parse(json, topic(), new long[topic().partitions()]);
  }

  /** What Spark read from a checkpoint it hands on as text. */
  private TopicOffset own(Offset offset) {
    return offset instanceof TopicOffset ours ? ours : deserializeOffset(offset.json());
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return maxRowsPerTrigger() > 0 ? ReadLimit.maxRows(maxRowsPerTrigger()) : ReadLimit.allAvailable();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    group.stopAtThisMoment();
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return group.next(this, own(start), limit);
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks sources with a read limit for latestOffset(start, limit)");
  }

  @Override
  public Offset reportLatestOffset() {
    LogMoment moment = group.now();
    return new OffsetParser(topic(moment), moment).parse("latest");
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    try {
      LogMoment moment = group.now();
      PartitionEnds[] ends = moment.ends(topic(moment));
      return planner.plan(ends, own(start).offsets(ends.length), own(end).offsets(ends.length));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return scan.readerFactory();
  }

  /** Shown in the query's progress. */
  @Override
  public Map<String, String> metrics(Optional<Offset> latestConsumed) {
    LogMoment now = group.now();
    PartitionEnds[] ends = now.ends(topic(now));
    long lag = 0;
    for (int partition = 0; partition < ends.length; partition++) {
      int number = partition;
      long read = latestConsumed.map(offset -> own(offset).offset(number)).orElse(ends[partition].start());
      lag += Math.max(0, ends[partition].end() - read);
    }
    return Map.of("lagRecords", Long.toString(lag), "streamTimeMs", Long.toString(now.streamTime(topic())));
  }

  /** How the source is called in the query's progress. */
  @Override
  public String toString() {
    return "headrace topic " + topic().name();
  }

  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {
    group.leave(this);
  }
}
