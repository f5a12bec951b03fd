package dev.headrace.spark.kafka;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.read.streaming.Offset;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;

/**
 * What the sources of one topic in a query share: where the next batch begins, and what stream time is there.
 *
 * <p>Stream time belongs to a partition: the largest event time before an offset is a fact of the log, whoever reads it
 * and in whatever batches. The *floor* is the least of them, over the partitions that are not idle. It only grows, and
 * each batch's is written down with its offsets. No record's stream time is below it, so what it closes may be
 * forgotten; only a partition that was idle can notice.
 */
final class TopicTimes {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Stream time by partition, and the floor, where a batch begins. */
  record Moment(Map<Integer, Long> times, long floor) {}

  private final KafkaOptions asked;
  private final LatestTimes seen = new LatestTimes();
  private final List<KafkaTopicStream> members = new ArrayList<>();
  private final Map<Integer, Long> quietSince = new HashMap<>();
  private KafkaOffsets start;
  private long floor;
  private String begun;
  private Moment moment;

  TopicTimes(KafkaOptions asked) {
    this.asked = asked;
    this.floor = asked.floor();
    SparkContext.getOrCreate().register(seen, "headrace stream times");
  }

  void join(KafkaTopicStream stream) {
    members.add(stream);
  }

  /** True if it was the last. */
  boolean leave(KafkaTopicStream stream) {
    members.remove(stream);
    return members.isEmpty();
  }

  LatestTimes seen() {
    return seen;
  }

  Map<Integer, Long> stops() {
    return asked.stopAt();
  }

  long maxRows() {
    return asked.maxRows();
  }

  boolean ordered() {
    return asked.ordered();
  }

  int rank() {
    return members.stream().mapToInt(member -> member.asked().rank()).min().orElse(0);
  }

  KafkaTopicStream reader() {
    return members.stream().filter(member -> !member.givesFloor()).findFirst().orElse(members.get(0));
  }

  KafkaOffsets start() {
    if (start == null) {
      start = asked.from().isEmpty() ? KafkaOffsets.of(reader().records().initialOffset()) : KafkaOffsets.parse(asked.from());
    }
    return start;
  }

  KafkaOffsets latest(ReadLimit limit) {
    Offset found = reader().latest(start(), limit);
    KafkaOffsets latest = found == null ? start() : KafkaOffsets.of(found);
    return asked.until() == null ? latest : latest.notBeyond(asked.until(), start());
  }

  /**
   * Without a source for it nobody would remember the floor, so there is none. `known`: the batch's results are there
   * already, from another log. What had been closed with them is closed, and nothing else.
   */
  void raiseFloor(KafkaOffsets end, KafkaOffsets visible, boolean anyNew, boolean known) {
    Optional<KafkaTopicStream> giver = members.stream().filter(KafkaTopicStream::givesFloor).findFirst();
    if (giver.isEmpty()) {
      return;
    }
    long least = least(times(), end, visible);
    long closed = giver.get().asked().closed();
    if (closed >= 0) {
      least = known ? Math.min(least, closed) : Math.max(least, closed);
    }
    if (anyNew || members.stream().anyMatch(member -> member.asked().wakes())) {
      floor = Math.max(floor, least);
    }
  }

  void decide(KafkaOffsets end, Map<KafkaTopicStream, Offset> decided) {
    for (KafkaTopicStream member : members) {
      decided.put(member, member.givesFloor() ? new FloorOffset(floor) : member.records().deserializeOffset(end.json()));
    }
    start = end;
  }

  /** Called by each source before its tasks are made. All earlier batches are done, so what their tasks saw is known. */
  synchronized Moment begin(Offset batchStart, Offset batchEnd) {
    String batch = batchStart.json() + batchEnd.json();
    if (!batch.equals(begun)) {
      begun = batch;
      moment = new Moment(times(), floor);
      note(KafkaOffsets.of(batchStart));
    }
    return moment;
  }

  Map<Integer, Long> times() {
    Map<Integer, Long> times = new HashMap<>(asked.times());
    seen.value().forEach((partition, time) -> times.merge(partition, time, Math::max));
    return times;
  }

  /** The least stream time of the partitions that are not idle and have ever had a record. */
  private long least(Map<Integer, Long> times, KafkaOffsets end, KafkaOffsets visible) {
    long least = Long.MAX_VALUE;
    long now = System.nanoTime() / 1_000_000;
    for (int partition : end.places().keySet()) {
      boolean quiet = end.at(partition) <= start().at(partition);
      if (quiet) {
        quietSince.putIfAbsent(partition, now);
      } else {
        quietSince.remove(partition);
      }
      boolean unused = quiet && end.at(partition) >= visible.at(partition) && !times.containsKey(partition);
      boolean idle = now - quietSince.getOrDefault(partition, now) > asked.idleMs();
      if (!unused && !idle) {
        least = Math.min(least, times.getOrDefault(partition, -1L));
      }
    }
    return least == Long.MAX_VALUE ? -1 : least;
  }

  /** For the next start. Losing it costs reading again, so it is not synced. */
  private void note(KafkaOffsets batchStart) {
    if (asked.timesFile().isEmpty()) {
      return;
    }
    ObjectNode body = JSON.createObjectNode();
    body.set("offsets", JSON.valueToTree(batchStart.places()));
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
}
