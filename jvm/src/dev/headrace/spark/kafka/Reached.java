package dev.headrace.spark.kafka;

import com.fasterxml.jackson.annotation.JsonFormat;
import java.io.Serializable;

/** How far time has come in a partition: the largest event time, and the offset of the record that brought it. */
@JsonFormat(shape = JsonFormat.Shape.ARRAY)
record Reached(long time, long since) implements Serializable {
  private static final long serialVersionUID = 1L;

  static final Reached NOTHING = new Reached(-1, 0);

  /** Bits for the records between two moments at which time moved on. */
  private static final int PLACES = 21;

  Reached later(Reached other) {
    return other.time > time || (other.time == time && other.since < since) ? other : this;
  }

  /**
   * A number that orders records as they came, as far as Kafka lets one know: within a partition by offset, across
   * partitions by how far time had come. It depends on nothing but the log.
   */
  long arrival(long offset) {
    return (Math.max(0, time) << PLACES) | Math.min(Math.max(0, offset - since), (1L << PLACES) - 1);
  }
}
