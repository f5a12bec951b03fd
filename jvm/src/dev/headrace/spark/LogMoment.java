package dev.headrace.spark;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** A moment of the log, as the owner published it: every record below one arrival number, and no other. */
final class LogMoment {
  static final int SLOT = 64;
  private final long arrival;
  private final ByteBuffer slots;

  LogMoment(long arrival, ByteBuffer slots) {
    this.arrival = arrival;
    this.slots = slots;
  }

  /** Every record with a smaller arrival number is visible. */
  long arrival() {
    return arrival;
  }

  /** How many partitions the topic has. */
  int partitions(TopicDefinition topic) {
    int most = 0;
    for (int at = 0; at < slots.limit(); at += SLOT) {
      if (slots.getInt(at) == topic.id()) {
        most = Math.max(most, slots.getInt(at + 4) + 1);
      }
    }
    return most;
  }

  /** By partition. A partition without a slot has no records yet. */
  PartitionEnds[] ends(TopicDefinition topic) {
    PartitionEnds[] ends = new PartitionEnds[topic.partitions()];
    Arrays.fill(ends, PartitionEnds.EMPTY);
    for (int at = 0; at < slots.limit(); at += SLOT) {
      int partition = slots.getInt(at + 4);
      if (slots.getInt(at) == topic.id() && partition < ends.length) {
        ends[partition] = new PartitionEnds(slots.getLong(at + 8), slots.getLong(at + 16));
      }
    }
    return ends;
  }

  /** The largest event time of the topic so far, -1 if it has none. */
  long streamTime(TopicDefinition topic) {
    long newest = -1; // only slots of partitions that were written to lately say it
    for (int at = 0; at < slots.limit(); at += SLOT) {
      if (slots.getInt(at) == topic.id()) {
        newest = Math.max(newest, slots.getLong(at + 24));
      }
    }
    return newest;
  }
}
