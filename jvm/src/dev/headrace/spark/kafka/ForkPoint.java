package dev.headrace.spark.kafka;

import java.io.Serializable;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.LongBinaryOperator;

/**
 * Where a topic was forked from another one (docs/decisions/0200): before `at`, by partition, its records are those of
 * the original; from there on they are its own, whose offsets Kafka counts from 0. Translates offsets of the fork as a
 * whole into those that Kafka knows in either topic, and back. A negative offset stands for a topic's start or end.
 */
record ForkPoint(String original, String topic, HashMap<Integer, Long> at) implements Serializable {
  private static final long serialVersionUID = 1L;

  long of(int partition) {
    return at.getOrDefault(partition, 0L);
  }

  boolean isReached(KafkaOffsets places) {
    return places.hasReached(at);
  }

  KafkaOffsets all() {
    return new KafkaOffsets(original, at);
  }

  KafkaOffsets inOriginal(KafkaOffsets places) {
    return each(original, places, Math::min);
  }

  /** The same of where a range ends: the end of the original is where the fork begins. */
  KafkaOffsets endInOriginal(KafkaOffsets places) {
    return each(original, places, (place, fork) -> place < 0 ? fork : Math.min(place, fork));
  }

  KafkaOffsets inFork(KafkaOffsets places) {
    return each(topic, places, (place, fork) -> place < 0 ? place : Math.max(place - fork, 0));
  }

  /** A partition is in the fork once it has come to the end of what the original has of it. */
  KafkaOffsets join(KafkaOffsets inOriginal, KafkaOffsets inFork) {
    Map<Integer, Long> found = new TreeMap<>();
    at.forEach(
        (partition, fork) -> {
          long before = inOriginal.at(partition);
          found.put(partition, before < fork ? before : fork + inFork.at(partition));
        });
    return new KafkaOffsets(topic, found);
  }

  private KafkaOffsets each(String name, KafkaOffsets places, LongBinaryOperator change) {
    Map<Integer, Long> found = new TreeMap<>();
    places.places().forEach((partition, place) -> found.put(partition, change.applyAsLong(place, of(partition))));
    return new KafkaOffsets(name, found);
  }
}
