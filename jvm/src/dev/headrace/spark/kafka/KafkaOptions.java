package dev.headrace.spark.kafka;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.Locale;
import java.util.Map;

/**
 * What a reader may ask of `format("headrace-kafka")` besides Spark's own options. Sources of one query name the same
 * `cut`: they then read up to the same offsets and share what is known about time.
 *
 * @param role what the source gives: all records, only those that lag behind stream time by more than `minLag`, or no
 *     record but the floor of stream time
 * @param times how far time had come, by partition, where the query begins or continues
 * @param floor no record's stream time is below this
 * @param timesFile where to note times and floor before each batch, so that the next start need not read all again
 * @param stopAt offsets that a batch must not pass over, by partition: it ends there, and the next one goes on
 * @param idleMs a partition without a new record for so long does not hold the floor back
 */
record KafkaOptions(
    Role role, String cut, Map<Integer, Reached> times, long floor, String timesFile, Map<Integer, Long> stopAt,
    long idleMs, long minLag) {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long IDLE_MS = 60_000;

  enum Role {
    RECORDS,
    LATE,
    FLOOR
  }

  static KafkaOptions parse(Map<String, String> options) {
    return new KafkaOptions(
        Role.valueOf(options.getOrDefault("role", "records").toUpperCase(Locale.ROOT)),
        options.getOrDefault("cut", ""),
        parse(options.getOrDefault("times", "{}"), new TypeReference<Map<Integer, Reached>>() {}),
        Long.parseLong(options.getOrDefault("floor", "-1")),
        options.getOrDefault("timesFile", ""),
        parse(options.getOrDefault("stopAt", "{}"), new TypeReference<Map<Integer, Long>>() {}),
        Long.parseLong(options.getOrDefault("idleMs", Long.toString(IDLE_MS))),
        Long.parseLong(options.getOrDefault("minLag", "-1")));
  }

  private static <T> T parse(String text, TypeReference<T> type) {
    try {
      return JSON.readValue(text, type);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException("not an object by partition: " + text, error);
    }
  }
}
