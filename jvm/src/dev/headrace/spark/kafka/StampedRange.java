package dev.headrace.spark.kafka;

import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.connector.read.InputPartition;

/**
 * A range of one Kafka partition, as Spark's source plans it, with what stream time was where each partition's range
 * begins. Which partition it is, the records say.
 */
record StampedRange(InputPartition range, HashMap<Integer, Long> times, long floor, long minLag)
    implements InputPartition {
  private static final long serialVersionUID = 1L;

  static InputPartition[] of(InputPartition[] ranges, Map<Integer, Long> times, long floor, long minLag) {
    HashMap<Integer, Long> fixed = new HashMap<>(times);
    return Arrays.stream(ranges).map(range -> new StampedRange(range, fixed, floor, minLag)).toArray(InputPartition[]::new);
  }

  @Override
  public String[] preferredLocations() {
    return range.preferredLocations();
  }
}
