package dev.headrace.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;

/** Ranges of offsets, from and to (exclusive), as in `quarantined.json`. */
final class OffsetRanges {
  static final OffsetRanges NONE = new OffsetRanges(new TreeMap<>());
  private final TreeMap<Long, Long> endByStart;

  private OffsetRanges(TreeMap<Long, Long> endByStart) {
    this.endByStart = endByStart;
  }

  static OffsetRanges parse(String json) throws IOException {
    TreeMap<Long, Long> ranges = new TreeMap<>();
    for (long[] range : new ObjectMapper().readValue(json, long[][].class)) {
      ranges.merge(range[0], range[1], Math::max);
    }
    return new OffsetRanges(ranges);
  }

  /** The first offset from `offset` on that is in one of the ranges; the largest number if there is none. */
  long firstInside(long offset) {
    if (firstOutside(offset) != offset) {
      return offset;
    }
    Long start = endByStart.ceilingKey(offset);
    return start == null ? Long.MAX_VALUE : start;
  }

  /** The first offset from `offset` on that is in none of the ranges. */
  long firstOutside(long offset) {
    Map.Entry<Long, Long> range = endByStart.floorEntry(offset);
    while (range != null && range.getValue() > offset) {
      offset = range.getValue();
      range = endByStart.floorEntry(offset);
    }
    return offset;
  }
}
