package dev.headrace.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/**
 * Finds the arrival number at which a topic's next `limit` records end. Arrival numbers are unique, so there is one
 * below which exactly that many are. It is found by bisection over frame headers; rows are read only of the few frames
 * that the answer turns on.
 */
final class RowLimit {
  private final TopicDefinition topic;
  private final long limit;
  private final BufferAllocator allocator;
  private final List<Run> runs = new ArrayList<>();

  private RowLimit(TopicDefinition topic, long limit, BufferAllocator allocator) {
    this.topic = topic;
    this.limit = limit;
    this.allocator = allocator;
  }

  /** The arrival number below which the topic has `limit` records from `from` on; `arrival` if it has no more. */
  static long cut(TopicDefinition topic, long[] from, PartitionEnds[] ends, long limit, long arrival)
      throws IOException {
    long available = 0;
    for (int partition = 0; partition < ends.length; partition++) {
      available += Math.max(0, ends[partition].end() - from[partition]);
    }
    if (available <= limit) {
      return arrival;
    }
    try (BufferAllocator allocator = new RootAllocator()) {
      RowLimit search = new RowLimit(topic, limit, allocator);
      for (int partition = 0; partition < ends.length; partition++) {
        search.runs.add(search.new Run(partition, from[partition], ends[partition].end()));
      }
      return search.bisect(arrival);
    }
  }

  /** The largest arrival number with at most `limit` rows below it. */
  private long bisect(long arrival) throws IOException {
    long low = 0;
    long high = arrival;
    while (low < high) {
      long middle = low + (high - low + 1) / 2;
      if (exceededBy(middle)) {
        high = middle - 1;
      } else {
        low = middle;
      }
    }
    return low;
  }

  private boolean exceededBy(long arrival) throws IOException {
    long least = 0;
    long most = 0;
    for (Run run : runs) {
      least += run.leastBelow(arrival);
      most += run.mostBelow(arrival);
    }
    if (least > limit || most <= limit) {
      return least > limit;
    }
    long rows = 0;
    for (Run run : runs) {
      rows += run.below(arrival);
    }
    return rows > limit;
  }

  /** Headers of the frames of one partition from an offset on, as many as the limit could need. */
  private final class Run {
    private final int partition;
    private final List<FrameHeader> frames = new ArrayList<>();
    private final List<Long> rowsBefore = new ArrayList<>();
    private final Map<Integer, FrameRows> read = new HashMap<>();
    private final long skipped;

    Run(int partition, long from, long to) throws IOException {
      this.partition = partition;
      long rows = 0;
      long before = 0;
      try (FrameCursor cursor =
          new FrameCursor(topic.partition(partition), from, to, allocator, FrameCursor.HEADERS)) {
        while (rows - before <= limit && cursor.next()) {
          FrameHeader frame = cursor.frame();
          frames.add(frame);
          rowsBefore.add(rows);
          if (frames.size() == 1) {
            before = rows(0).before(from);
          }
          rows += frame.rows();
        }
      }
      rowsBefore.add(rows);
      skipped = before;
    }

    /** Number of the first frame that has rows at or past `arrival`. */
    private int straddling(long arrival) {
      int low = 0;
      int high = frames.size();
      while (low < high) {
        int middle = (low + high) >>> 1;
        if (frames.get(middle).lastArrival() < arrival) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      return low;
    }

    private FrameRows rows(int number) throws IOException {
      FrameRows found = read.get(number);
      if (found == null) {
        found = FrameRows.of(topic, partition, frames.get(number), allocator);
        read.put(number, found);
      }
      return found;
    }

    long leastBelow(long arrival) {
      int number = straddling(arrival);
      long inside = 0;
      if (number < frames.size()) {
        FrameHeader frame = frames.get(number);
        inside = Math.max(0, frame.rows() - (frame.lastArrival() - arrival + 1));
      }
      return Math.max(0, rowsBefore.get(number) + inside - skipped);
    }

    long mostBelow(long arrival) {
      int number = straddling(arrival);
      long inside = 0;
      if (number < frames.size()) {
        FrameHeader frame = frames.get(number);
        inside = Math.max(0, Math.min(frame.rows(), arrival - frame.firstArrival()));
      }
      return Math.max(0, rowsBefore.get(number) + inside - skipped);
    }

    long below(long arrival) throws IOException {
      int number = straddling(arrival);
      long inside = number < frames.size() ? rows(number).below(arrival) : 0;
      return Math.max(0, rowsBefore.get(number) + inside - skipped);
    }
  }
}
