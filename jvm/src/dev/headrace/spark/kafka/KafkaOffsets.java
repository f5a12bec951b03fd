package dev.headrace.spark.kafka;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** Places in one topic, by partition. Kafka's own text is {"topic": {"partition": offset}}. */
record KafkaOffsets(String topic, Map<Integer, Long> places) {
  private static final ObjectMapper JSON = new ObjectMapper();

  static KafkaOffsets of(Offset offset) {
    return parse(offset.json());
  }

  static KafkaOffsets parse(String json) {
    try {
      Map.Entry<String, JsonNode> topic = JSON.readTree(json).properties().iterator().next();
      Map<Integer, Long> places = new TreeMap<>();
      topic.getValue().properties().forEach(one -> places.put(Integer.valueOf(one.getKey()), one.getValue().asLong()));
      return new KafkaOffsets(topic.getKey(), places);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException("not Kafka's offsets: " + json, error);
    }
  }

  String json() {
    try {
      return JSON.writeValueAsString(Map.of(topic, places));
    } catch (JsonProcessingException error) {
      throw new IllegalStateException(error);
    }
  }

  long at(int partition) {
    return places.getOrDefault(partition, 0L);
  }

  /** How many offsets lie between an earlier place and this one. */
  long since(KafkaOffsets start) {
    return places.entrySet().stream().mapToLong(end -> Math.max(0, end.getValue() - start.at(end.getKey()))).sum();
  }

  /** Not beyond `stops` where they say something; never before `start`. */
  KafkaOffsets notBeyond(Map<Integer, Long> stops, KafkaOffsets start) {
    Map<Integer, Long> found = new TreeMap<>(places);
    found.replaceAll(
        (partition, end) -> {
          long begin = start.at(partition);
          return Math.max(begin, Math.min(end, stops.getOrDefault(partition, begin)));
        });
    return new KafkaOffsets(topic, found);
  }

  boolean isWithin(Map<Integer, Long> stops) {
    return places.entrySet().stream().allMatch(end -> end.getValue() <= stops.getOrDefault(end.getKey(), 0L));
  }

  boolean hasReached(Map<Integer, Long> stops) {
    return stops.entrySet().stream().allMatch(stop -> at(stop.getKey()) >= stop.getValue());
  }
}
