package dev.headrace.spark.kafka;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;

/**
 * The sources of one query, which end a batch together.
 *
 * <p>Spark asks every source once per trigger, one after the other. Whoever is asked first decides for all: everything
 * that is visible now; if that is too much, the records that come first ({@link OrderedCut}). So a query that catches
 * up sees the records of its topics in the same order however its batches are cut. What becomes visible later is of a
 * later batch, whatever its time.
 */
final class QueryCut {
  /** How long a look for new records lasts, and the pauses in it; Spark itself would ask a thousand times a second. */
  private static final long LOOK_MS = 100;

  private static final long PAUSE_MS = 5;
  private static final Map<String, QueryCut> GROUPS = new HashMap<>();

  private final String name;
  private final Map<String, TopicTimes> topics = new LinkedHashMap<>();
  private final Map<KafkaTopicStream, Offset> decided = new HashMap<>();
  private boolean rested;

  private QueryCut(String name) {
    this.name = name;
  }

  /** A source without a `cut` is alone. */
  static QueryCut join(KafkaTopicStream stream, KafkaOptions asked) {
    synchronized (GROUPS) {
      String name = asked.cut();
      QueryCut group = name.isEmpty() ? new QueryCut(name) : GROUPS.computeIfAbsent(name, QueryCut::new);
      synchronized (group) {
        group.topics.computeIfAbsent(asked.topic(), topic -> new TopicTimes(asked)).join(stream);
      }
      return group;
    }
  }

  void leave(KafkaTopicStream stream) {
    synchronized (GROUPS) {
      synchronized (this) {
        topics.values().removeIf(topic -> topic.leave(stream));
        if (topics.isEmpty()) {
          GROUPS.remove(name, this);
        }
      }
    }
  }

  synchronized TopicTimes topic(KafkaOptions asked) {
    return topics.get(asked.topic());
  }

  /** Where the batch ends for a source: it is asked for the second time when the next trigger has come. */
  synchronized Offset end(KafkaTopicStream stream, ReadLimit limit) {
    if (!decided.containsKey(stream)) {
      decide(limit);
    }
    return decided.remove(stream);
  }

  private void decide(ReadLimit limit) {
    // One topic may mostly be cut anywhere: Spark's own limit does, without a look at the records.
    boolean ordered = topics.size() > 1 || topics.values().stream().anyMatch(TopicTimes::ordered);
    ReadLimit each = ordered ? ReadLimit.allAvailable() : limit;
    boolean stopping = topics.values().stream().anyMatch(topic -> !topic.start().hasReached(topic.stops())) || rests();
    Map<TopicTimes, KafkaOffsets> ends = look(each, stopping);
    boolean anyNew = isNew(ends);
    long most = topics.values().stream().mapToLong(TopicTimes::maxRows).max().orElse(0);
    long rows = ends.entrySet().stream().mapToLong(end -> end.getValue().since(end.getKey().start())).sum();
    Map<TopicTimes, KafkaOffsets> visible = new HashMap<>(ends);
    if (ordered && most > 0 && rows > most) {
      ends = OrderedCut.first(ends, most);
    }
    boolean known = ends.entrySet().stream().allMatch(end -> end.getValue().isWithin(end.getKey().stops()));
    decided.clear();
    for (Map.Entry<TopicTimes, KafkaOffsets> end : ends.entrySet()) {
      TopicTimes topic = end.getKey();
      topic.raiseFloor(end.getValue(), visible.get(topic), anyNew, known);
      topic.decide(end.getValue(), decided);
    }
  }

  /**
   * Once, before the first batch behind the stops: what time has brought about by then comes out of a batch without
   * records, which Spark makes when there are none, and which belongs to what was before them.
   */
  private boolean rests() {
    boolean first = !rested && topics.values().stream().anyMatch(topic -> !topic.stops().isEmpty());
    rested = true;
    return first;
  }

  /** For a trigger that ends with the first batch without records. */
  synchronized void stopAtThisMoment() {
    rested = true;
  }

  /** As soon as there is something new; at the latest after a while. */
  private Map<TopicTimes, KafkaOffsets> look(ReadLimit limit, boolean stopping) {
    long until = System.nanoTime() + LOOK_MS * 1_000_000;
    while (true) {
      Map<TopicTimes, KafkaOffsets> found = new LinkedHashMap<>();
      for (TopicTimes topic : topics.values()) {
        KafkaOffsets latest = topic.latest(limit);
        // A query that was moved here ends a batch where it was: none has records from before and from after.
        found.put(topic, stopping ? latest.notBeyond(topic.stops(), topic.start()) : latest);
      }
      if (isNew(found) || System.nanoTime() >= until) {
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

  private static boolean isNew(Map<TopicTimes, KafkaOffsets> ends) {
    return ends.entrySet().stream().anyMatch(end -> end.getValue().since(end.getKey().start()) > 0);
  }
}
