package dev.headrace.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Arrays;
import java.util.Map;
import org.apache.spark.sql.connector.read.streaming.Offset;

/**
 * How far a topic has been read: the next offset of each partition. It holds exactly the topic's records below
 * `arrival`, which is the same number for all sources of a query.
 *
 * <p>`closed`: what these records have closed is out, too. Spark's watermark moves between batches, so that takes one
 * more batch at the same place, without records.
 */
final class TopicOffset extends Offset {
  private static final ObjectMapper JSON = new ObjectMapper();
  private final int topicId;
  private final long arrival;
  private final long[] offsets;
  private final boolean closed;

  TopicOffset(int topicId, long arrival, long[] offsets) {
    this(topicId, arrival, offsets, false);
  }

  private TopicOffset(int topicId, long arrival, long[] offsets, boolean closed) {
    this.topicId = topicId;
    this.arrival = arrival;
    this.offsets = offsets;
    this.closed = closed;
  }

  /** Read what `json` wrote. Partitions it does not name are at `missing`. */
  static TopicOffset parse(String text, TopicDefinition topic, long[] missing) {
    JsonNode body = readTree(text);
    int topicId = body.path("topic").asInt(topic.id());
    if (!topic.continues(topicId)) {
      throw LogException.topicReplaced(topic.name(), topicId, topic.id());
    }
    long[] offsets = missing.clone();
    for (Map.Entry<String, JsonNode> entry : body.path("partitions").properties()) {
      int partition = partition(entry.getKey(), topic);
      offsets[partition] = entry.getValue().asLong();
    }
    return new TopicOffset(topic.id(), body.path("arrival").asLong(0), offsets, body.path("closed").asBoolean(false));
  }

  static JsonNode readTree(String text) {
    try {
      return JSON.readTree(text);
    } catch (JsonProcessingException error) {
      throw LogException.usage(
          "`%s` is not JSON: say {\"partitions\": {\"0\": 12}} or {\"arrival\": 34}".formatted(text));
    }
  }

  private static int partition(String text, TopicDefinition topic) {
    int partition = text.matches("\\d{1,9}") ? Integer.parseInt(text) : -1;
    if (partition < 0 || partition >= topic.partitions()) {
      throw LogException.usage(
          "topic `%s` has no partition `%s`, it has %d".formatted(topic.name(), text, topic.partitions()));
    }
    return partition;
  }

  long arrival() {
    return arrival;
  }

  boolean closed() {
    return closed;
  }

  /** The same place. */
  TopicOffset closed(boolean isClosed) {
    return new TopicOffset(topicId, arrival, offsets, isClosed);
  }

  /** A partition that was split off since has not been read at all. */
  long offset(int partition) {
    return partition < offsets.length ? offsets[partition] : 0;
  }

  /** For at least so many partitions. */
  long[] offsets(int partitions) {
    return Arrays.copyOf(offsets, Math.max(partitions, offsets.length));
  }

  /** This, but no partition before where `start` has it. */
  TopicOffset orStart(TopicOffset start) {
    long[] later = new long[Math.max(offsets.length, start.offsets.length)];
    for (int partition = 0; partition < later.length; partition++) {
      later[partition] = Math.max(offset(partition), start.offset(partition));
    }
    return new TopicOffset(topicId, Math.max(arrival, start.arrival), later, closed);
  }

  boolean sameOffsets(TopicOffset other) {
    return Arrays.equals(offsets(other.offsets.length), other.offsets(offsets.length));
  }

  @Override
  public String json() {
    StringBuilder out = new StringBuilder("{\"topic\":" + topicId + ",\"arrival\":" + arrival + ",\"partitions\":{");
    for (int partition = 0; partition < offsets.length; partition++) {
      out.append(partition == 0 ? "\"" : ",\"").append(partition).append("\":").append(offsets[partition]);
    }
    return out.append(closed ? "},\"closed\":true}" : "}}").toString();
  }
}
