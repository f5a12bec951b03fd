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
  /** How long a look for new records lasts, and the pauses in it; Spark itself would ask a thousand times a second. */
  private static final long LOOK_MS = 100;

  private static final long PAUSE_MS = 5;

  private final MicroBatchStream records;
  private final KafkaOptions asked;
  private final StreamTimes times;

  KafkaTopicStream(MicroBatchStream records, KafkaOptions asked) {
    this.records = records;
    this.asked = asked;
    this.times = StreamTimes.join(this, asked);
  }

  @Override
  public Offset initialOffset() {
    return records.initialOffset();
  }

  @Override
  public Offset deserializeOffset(String json) {
    return records.deserializeOffset(json);
  }

  /** What Spark read from a checkpoint it hands on as text. */
  private Offset own(Offset offset) {
    return deserializeOffset(offset.json());
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return ((SupportsAdmissionControl) records).getDefaultReadLimit();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    ((SupportsTriggerAvailableNow) records).prepareForTriggerAvailableNow();
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    return times.end(this, start, () -> look(own(start), limit));
  }

  private Offset look(Offset start, ReadLimit limit) {
    long until = System.nanoTime() + LOOK_MS * 1_000_000;
    while (true) {
      Offset latest = ((SupportsAdmissionControl) records).latestOffset(start, limit);
      Offset found = times.notBeyond(start, latest, records);
      if (found == null || !found.json().equals(start.json()) || System.nanoTime() >= until) {
        return found;
      }
      try {
        Thread.sleep(PAUSE_MS);
      } catch (InterruptedException error) {
        Thread.currentThread().interrupt();
        return found;
      }
    }
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks sources with a read limit for latestOffset(start, limit)");
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    StreamTimes.Moment now = times.begin(start, end);
    if (asked.role() == KafkaOptions.Role.FLOOR) {
      return now.floor() < 0 ? new InputPartition[0] : new InputPartition[] {new FloorPartition(now.floor())};
    }
    InputPartition[] ranges = records.planInputPartitions(own(start), own(end));
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
    records.commit(own(end));
  }

  @Override
  public void stop() {
    times.leave(this);
    records.stop();
  }
}
