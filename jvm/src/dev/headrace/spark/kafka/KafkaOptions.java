package dev.headrace.spark.kafka;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.core.type.TypeReference;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/**
 * What a reader may ask of `format("headrace-kafka")` besides Spark's own options. Sources of one query name the same
 * `cut`: a batch then ends for all of them together, and those of one topic share what is known about time.
 *
 * @param role what the source gives: all records, only those that lag behind stream time by more than `minLag`, or no
 *     record but the floor of stream time
 * @param topic as Kafka calls it
 * @param rank which of a query's inputs comes first where several have records of the same time: the lowest
 * @param maxRows how many records a batch has that is cut in order
 * @param ordered whether batches of one topic, too, are cut in order of time over its partitions
 * @param from where the query goes on, as Kafka's offsets; empty where it begins
 * @param times how far time had come, by partition, where the query begins or continues
 * @param floor no record's stream time is below this
 * @param closed of a query that was moved here: the floor that its results before were made with; -1 if there are none
 * @param wakes whether a new floor is reason enough for a batch: results wait for it
 * @param timesFile where to note times before each batch, so that the next start need not read all again
 * @param stopAt offsets that a batch must not pass over, by partition: it ends there, and the next one goes on
 * @param until offsets that no batch goes beyond, by partition; a partition that is not named is not read any further.
 *     Null if there are none
 * @param fork of a topic that was forked: from which one, and where; null if it was not
 * @param idleMs a partition without a new record for so long does not hold the floor back
 */
record KafkaOptions(
    Role role, String cut, String topic, int rank, long maxRows, boolean ordered, String from, Map<Integer, Long> times, long floor,
    long closed, boolean wakes, String timesFile, Map<Integer, Long> stopAt, Map<Integer, Long> until, ForkPoint fork,
    long idleMs, long minLag) {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final TypeReference<Map<Integer, Long>> BY_PARTITION = new TypeReference<>() {};
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
        options.getOrDefault("subscribe", ""),
        Integer.parseInt(options.getOrDefault("rank", "0")),
        Long.parseLong(options.getOrDefault("maxRows", "0")),
        Boolean.parseBoolean(options.getOrDefault("ordered", "false")),
        options.getOrDefault("from", ""),
        parse(options.getOrDefault("times", "{}")),
        Long.parseLong(options.getOrDefault("floor", "-1")),
        Long.parseLong(options.getOrDefault("closed", "-1")),
        Boolean.parseBoolean(options.getOrDefault("wakes", "false")),
        options.getOrDefault("timesFile", ""),
        parse(options.getOrDefault("stopAt", "{}")),
        options.containsKey("until") ? parse(options.get("until")) : null,
        forkPoint(options),
        Long.parseLong(options.getOrDefault("idleMs", Long.toString(IDLE_MS))),
        Long.parseLong(options.getOrDefault("minLag", "-1")));
  }

  private static ForkPoint forkPoint(Map<String, String> options) {
    String original = options.getOrDefault("forkOf", "");
    return original.isEmpty() ? null : new ForkPoint(original, options.get("subscribe"), new HashMap<>(parse(options.get("forkAt"))));
  }

  private static Map<Integer, Long> parse(String text) {
    try {
      return JSON.readValue(text, BY_PARTITION);
    } catch (JsonProcessingException error) {
      throw new IllegalArgumentException("not numbers by partition: " + text, error);
    }
  }
}
