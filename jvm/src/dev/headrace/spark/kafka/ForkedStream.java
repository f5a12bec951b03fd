package dev.headrace.spark.kafka;

import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;
import org.apache.spark.sql.connector.read.streaming.SupportsAdmissionControl;
import org.apache.spark.sql.connector.read.streaming.SupportsTriggerAvailableNow;

/** A topic that was forked, as a stream. Its offsets are those of the fork as a whole, in the fork's name. */
final class ForkedStream implements MicroBatchStream, SupportsTriggerAvailableNow {
  private final MicroBatchStream original;
  private final MicroBatchStream fork;
  private final ForkPoint point;

  ForkedStream(MicroBatchStream original, MicroBatchStream fork, ForkPoint point) {
    this.original = original;
    this.fork = fork;
    this.point = point;
  }

  @Override
  public Offset initialOffset() {
    KafkaOffsets before = KafkaOffsets.of(original.initialOffset());
    return new Place(point.join(before, KafkaOffsets.of(fork.initialOffset())));
  }

  /** What was noted before the fork is in the original's name, and means the same. */
  @Override
  public Offset deserializeOffset(String json) {
    return new Place(new KafkaOffsets(point.topic(), KafkaOffsets.parse(json).places()));
  }

  @Override
  public ReadLimit getDefaultReadLimit() {
    return ((SupportsAdmissionControl) fork).getDefaultReadLimit();
  }

  @Override
  public void prepareForTriggerAvailableNow() {
    ((SupportsTriggerAvailableNow) original).prepareForTriggerAvailableNow();
    ((SupportsTriggerAvailableNow) fork).prepareForTriggerAvailableNow();
  }

  @Override
  public Offset latestOffset(Offset start, ReadLimit limit) {
    KafkaOffsets from = KafkaOffsets.of(start);
    KafkaOffsets before = point.inOriginal(from);
    if (!point.isReached(from)) {
      before = latest(original, before, limit);
    }
    return new Place(point.join(before, latest(fork, point.inFork(from), limit)));
  }

  private static KafkaOffsets latest(MicroBatchStream topic, KafkaOffsets from, ReadLimit limit) {
    Offset found = ((SupportsAdmissionControl) topic).latestOffset(topic.deserializeOffset(from.json()), limit);
    return found == null ? from : KafkaOffsets.of(found);
  }

  @Override
  public Offset latestOffset() {
    throw new UnsupportedOperationException("Spark asks sources with a read limit for latestOffset(start, limit)");
  }

  @Override
  public InputPartition[] planInputPartitions(Offset start, Offset end) {
    KafkaOffsets from = KafkaOffsets.of(start);
    KafkaOffsets to = KafkaOffsets.of(end);
    return ForkedRange.pair(
        plan(original, point.inOriginal(from), point.inOriginal(to)), plan(fork, point.inFork(from), point.inFork(to)), point);
  }

  /** Where nothing is to be read, nothing is asked for: the original may not have the place any more. */
  private static InputPartition[] plan(MicroBatchStream topic, KafkaOffsets from, KafkaOffsets to) {
    if (to.since(from) == 0) {
      return new InputPartition[0];
    }
    return topic.planInputPartitions(topic.deserializeOffset(from.json()), topic.deserializeOffset(to.json()));
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new ForkedRange.Readers(original.createReaderFactory(), fork.createReaderFactory());
  }

  /** Spark's source has nothing to do here. */
  @Override
  public void commit(Offset end) {}

  @Override
  public void stop() {
    original.stop();
    fork.stop();
  }

  @Override
  public String toString() {
    return fork + ", a fork of " + point.original();
  }

  private static final class Place extends Offset {
    private final String json;

    Place(KafkaOffsets places) {
      this.json = places.json();
    }

    @Override
    public String json() {
      return json;
    }
  }
}
