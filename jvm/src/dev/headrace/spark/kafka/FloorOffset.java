package dev.headrace.spark.kafka;

import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.sql.connector.read.streaming.Offset;

/** The floor as the offset of a source of its own: Spark writes it down with the batch it counts for. */
final class FloorOffset extends Offset {
  private static final Pattern TEXT = Pattern.compile("\\{\"floor\":(-?\\d+)\\}");

  private final long floor;

  FloorOffset(long floor) {
    this.floor = floor;
  }

  /** Before floors had offsets, the source had its topic's: then nothing is known. */
  static FloorOffset parse(String json) {
    Matcher found = TEXT.matcher(json);
    return new FloorOffset(found.matches() ? Long.parseLong(found.group(1)) : -1);
  }

  long floor() {
    return floor;
  }

  @Override
  public String json() {
    return "{\"floor\":" + floor + "}";
  }
}
