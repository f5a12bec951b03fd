package dev.headrace.spark.kafka;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.util.AccumulatorV2;

/** The largest event time in what tasks have read, by partition. A task that runs twice says the same twice. */
final class LatestTimes extends AccumulatorV2<Map.Entry<Integer, Long>, Map<Integer, Long>> {
  private static final long serialVersionUID = 1L;

  private final HashMap<Integer, Long> times = new HashMap<>();

  synchronized void add(int partition, long time) {
    times.merge(partition, time, Math::max);
  }

  @Override
  public void add(Map.Entry<Integer, Long> seen) {
    add(seen.getKey(), seen.getValue());
  }

  @Override
  public void merge(AccumulatorV2<Map.Entry<Integer, Long>, Map<Integer, Long>> other) {
    other.value().forEach(this::add);
  }

  @Override
  public synchronized Map<Integer, Long> value() {
    return new HashMap<>(times);
  }

  @Override
  public synchronized boolean isZero() {
    return times.isEmpty();
  }

  @Override
  public synchronized void reset() {
    times.clear();
  }

  @Override
  public LatestTimes copy() {
    LatestTimes copied = new LatestTimes();
    copied.times.putAll(value());
    return copied;
  }
}
