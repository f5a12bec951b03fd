package dev.headrace.spark.kafka;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/** A topic on Kafka as a stream of micro-batches: Spark's own source, in step with the others of its query. */
final class KafkaTopicStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private final MicroBatchStream records;
  private final KafkaOptions asked;
  private final QueryCut cut;
  private final TopicTimes times;

  KafkaTopicStream(MicroBatchStream records, KafkaOptions asked) {
    this.records = records;
    this.asked = asked;
    this.cut = QueryCut.join(this, asked);
    this.times = cut.topic(asked);
  }

  MicroBatchStream records() {
    return records;
  }

  KafkaOptions asked() {
    return asked;
  }

  boolean givesFloor() {
    return asked.role() == KafkaOptions.Role.FLOOR;
  }

  @Override
  public Offset initialOffset() {
    return givesFloor() ? new FloorOffset(-1) : records.initialOffset();
  }

  @Override
  public Offset deserializeOffset(String json) {
    return givesFloor() ? FloorOffset.parse(json) : records.deserializeOffset(json);
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return ((SupportsAdmissionControl) records).getDefaultReadLimit();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    cut.stopAtThisMoment();
    ((SupportsTriggerAvailableNow) records).prepareForTriggerAvailableNow();
  }

  /** The group knows where the batch begins: where the last one ended, of which Spark has heard from it. */
  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return cut.end(this, limit);
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks sources with a read limit for latestOffset(start, limit)");
  }

  Offset latest(KafkaOffsets start, ReadLimit limit) {
    return ((SupportsAdmissionControl) records).latestOffset(records.deserializeOffset(start.json()), limit);
  }

  InputPartition[] ranges(KafkaOffsets start, KafkaOffsets end) {
    return records.planInputPartitions(
        records.deserializeOffset(start.json()), records.deserializeOffset(end.json()));
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    if (givesFloor()) {
      long floor = FloorOffset.parse(end.json()).floor();
      return floor < 0 ? new InputPartition[0] : new InputPartition[] {new FloorPartition(floor)};
    }
    TopicTimes.Moment now = times.begin(start, end);
    InputPartition[] ranges = ranges(KafkaOffsets.of(start), KafkaOffsets.of(end));
    return StampedRange.of(ranges, now.times(), now.floor(), asked.minLag());
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new StampingReaderFactory(records.createReaderFactory(), times.seen());
  }

  /** How the source is called in the query's progress. */
  @Override
  public String toString() {
    return "headrace " + records;
  }

  @Override
  public void commit(Offset end) {
    if (!givesFloor()) {
      records.commit(records.deserializeOffset(end.json()));
    }
  }

  @Override
  public void stop() {
    cut.leave(this);
    records.stop();
  }
}
