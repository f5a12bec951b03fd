package dev.headrace.spark.kafka;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * What the sources of one query share: how far the current batch goes, and what stream time is where it begins.
 *
 * <p>Stream time belongs to a partition: the largest event time before an offset is a fact of the log, whoever reads it
 * and in whatever batches. The *floor* is the least of them, over the partitions that are not idle. It only grows. No
 * record's stream time is below it, so what it closes may be forgotten; only a partition that was idle can notice.
 */
final class StreamTimes {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final Map<String, StreamTimes> GROUPS = new HashMap<>();

  /** Stream time by partition, and the floor, where a batch begins. */
  record Moment(Map<Integer, Reached> times, long floor) {}

  private final KafkaOptions asked;
  private final LatestTimes seen = new LatestTimes();
  private final Set<KafkaTopicStream> members = new HashSet<>();
  private final Set<KafkaTopicStream> told = new HashSet<>();
  private final Map<Integer, Long> quietSince = new HashMap<>();
  private String cutStart;
  private Offset cutEnd;
  private String begun;
  private Moment moment;

  private StreamTimes(KafkaOptions asked) {
    this.asked = asked;
    this.moment = new Moment(asked.times(), asked.floor());
    SparkContext.getOrCreate().register(seen, "headrace stream times");
  }

  /** A source without a `cut` is alone. */
  static StreamTimes join(KafkaTopicStream stream, KafkaOptions asked) {
    synchronized (GROUPS) {
      StreamTimes group =
          asked.cut().isEmpty() ? new StreamTimes(asked) : GROUPS.computeIfAbsent(asked.cut(), cut -> new StreamTimes(asked));
      group.members.add(stream);
      return group;
    }
  }

  void leave(KafkaTopicStream stream) {
    synchronized (GROUPS) {
      members.remove(stream);
      if (members.isEmpty()) {
        GROUPS.remove(asked.cut(), this);
      }
    }
  }

  LatestTimes seen() {
    return seen;
  }

  /** The end of the batch that begins at `start`: whoever asks first decides, the others are told the same. */
  synchronized Offset end(KafkaTopicStream stream, Offset start, Supplier<Offset> look) {
    if (!start.json().equals(cutStart) || !told.add(stream)) {
      told.clear();
      told.add(stream);
      cutStart = start.json();
      cutEnd = look.get();
    }
    return cutEnd;
  }

  /** A batch that begins before `stopAt` ends there at the latest. */
  Offset notBeyond(Offset start, Offset end, MicroBatchStream records) {
    Map<Integer, Long> stops = asked.stopAt();
    Map<Integer, Long> starts = offsets(start);
    if (end == null || stops.entrySet().stream().allMatch(stop -> starts.getOrDefault(stop.getKey(), 0L) >= stop.getValue())) {
      return end;
    }
    Map<Integer, Long> ends = offsets(end);
    ends.replaceAll(
        (partition, offset) -> {
          long begin = starts.getOrDefault(partition, 0L);
          return Math.max(begin, Math.min(offset, stops.getOrDefault(partition, begin)));
        });
    try {
      String topic = JSON.readTree(end.json()).fieldNames().next();
      return records.deserializeOffset(JSON.writeValueAsString(Map.of(topic, ends)));
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException("not Kafka's offsets: " + end.json(), error);
    }
  }

  /** Called by each source before its tasks are made. All earlier batches are done, so what their tasks saw is known. */
  synchronized Moment begin(Offset start, Offset end) {
    String batch = start.json() + end.json();
    if (batch.equals(begun)) {
      return moment;
    }
    begun = batch;
    Map<Integer, Reached> times = new HashMap<>(asked.times());
    seen.value().forEach((partition, reached) -> times.merge(partition, reached, Reached::later));
    moment = new Moment(times, Math.max(moment.floor(), least(times, offsets(start), offsets(end))));
    note(start);
    return moment;
  }

  /** The least stream time of the partitions that are not idle; none if one of those has never had a record. */
  private long least(Map<Integer, Reached> times, Map<Integer, Long> starts, Map<Integer, Long> ends) {
    long least = Long.MAX_VALUE;
    long now = nowMs();
    for (Map.Entry<Integer, Long> end : ends.entrySet()) {
      int partition = end.getKey();
      if (end.getValue() > starts.getOrDefault(partition, 0L)) {
        quietSince.remove(partition);
      } else {
        quietSince.putIfAbsent(partition, now);
      }
      if (now - quietSince.getOrDefault(partition, now) <= asked.idleMs()) {
        least = Math.min(least, times.getOrDefault(partition, Reached.NOTHING).time());
      }
    }
    return least == Long.MAX_VALUE ? -1 : least;
  }

  /** For the next start. Losing it costs reading again, so it is not synced. */
  private void note(Offset start) {
    if (asked.timesFile().isEmpty()) {
      return;
    }
    ObjectNode body = JSON.createObjectNode().put("floor", moment.floor());
    body.set("offsets", JSON.valueToTree(offsets(start)));
    body.set("times", JSON.valueToTree(moment.times()));
    Path file = Path.of(asked.timesFile());
    Path draft = file.resolveSibling(file.getFileName() + ".tmp");
    try {
      Files.createDirectories(file.getParent());
      Files.writeString(draft, body.toString());
      Files.move(draft, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  /** Kafka's offsets are {"topic": {"partition": offset}}; a source of ours has one topic. */
  private static Map<Integer, Long> offsets(Offset offset) {
    try {
      Map<Integer, Long> found = new HashMap<>();
      for (JsonNode topic : JSON.readTree(offset.json())) {
        topic.properties().forEach(entry -> found.put(Integer.valueOf(entry.getKey()), entry.getValue().asLong()));
      }
      return found;
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException("not Kafka's offsets: " + offset.json(), error);
    }
  }

  private static long nowMs() {
    return System.nanoTime() / 1_000_000;
  }
}
