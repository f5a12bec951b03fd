package dev.headrace.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;
import org.apache.spark.sql.connector.read.InputPartition;

/** Cuts ranges of offsets into tasks. */
final class RangePlanner {
  /** A task costs some milliseconds; fewer rows than this are not worth another. */
  private static final long LEAST_ROWS = 50_000;

  /** A task keeps a core to itself until it ends: with more rows than this, other queries would wait too long. */
  private static final long MOST_ROWS = 1_000_000;

  private final TopicDefinition topic;
  private final Long minLag;
  private final int tasks;

  /** `tasks` is how many would keep all cores busy. */
  RangePlanner(TopicDefinition topic, Long minLag, int tasks) {
    this.topic = topic;
    this.minLag = minLag;
    this.tasks = tasks;
  }

  InputPartition[] plan(PartitionEnds[] ends, long[] from, long[] to) throws IOException {
    List<OffsetRange> wanted = new ArrayList<>();
    for (int partition = 0; partition < ends.length; partition++) {
      if (from[partition] < to[partition]) {
        check(partition, ends[partition], from[partition], to[partition]);
        OffsetRange range = withLateFrames(new OffsetRange(partition, from[partition], to[partition]));
        if (range != null) {
          wanted.add(range);
        }
      }
    }
    long rows = wanted.stream().mapToLong(range -> range.to() - range.from()).sum();
    long rowsPerTask = Math.max(LEAST_ROWS, Math.min(rows / tasks, MOST_ROWS));
    List<OffsetRange> planned = new ArrayList<>();
    for (OffsetRange range : wanted) {
      split(range, Math.round((double) (range.to() - range.from()) / rowsPerTask), planned);
    }
    return planned.toArray(InputPartition[]::new);
  }

  private void check(int partition, PartitionEnds ends, long from, long to) {
    if (from < ends.start()) {
      throw LogException.offsetOutOfRange(
          topic.name(), partition, from, "was deleted: by retention the log starts at %d".formatted(ends.start()));
    }
    if (to > ends.end()) {
      throw LogException.offsetOutOfRange(
          topic.name(), partition, to, "is past the log's end %d: was an older log restored?".formatted(ends.end()));
    }
  }

  /** The part from the first to the last frame that can hold late records; null if none can. */
  private OffsetRange withLateFrames(OffsetRange range) throws IOException {
    if (minLag == null) {
      return range;
    }
    long first = -1;
    long last = -1;
    try (BufferAllocator allocator = new RootAllocator();
        FrameCursor cursor = headers(range, range.from(), allocator)) {
      while (cursor.next()) {
        FrameHeader frame = cursor.frame();
        if (frame.maxLag() > minLag) {
          first = first < 0 ? frame.baseOffset() : first;
          last = frame.endOffset();
        }
      }
    }
    return first < 0
        ? null
        : new OffsetRange(range.partition(), Math.max(first, range.from()), Math.min(last, range.to()));
  }

  /** Cut a range into about `pieces`, where frames or archived files begin, so that none is read twice. */
  private void split(OffsetRange range, long pieces, List<OffsetRange> into) throws IOException {
    long from = range.from();
    for (long piece = 1; piece < pieces; piece++) {
      long near = range.from() + (range.to() - range.from()) * piece / pieces;
      long at = frameStart(range, near);
      if (at > from) {
        into.add(new OffsetRange(range.partition(), from, at));
        from = at;
      }
    }
    into.add(new OffsetRange(range.partition(), from, range.to()));
  }

  private long frameStart(OffsetRange range, long near) throws IOException {
    try (BufferAllocator allocator = new RootAllocator();
        FrameCursor cursor = headers(range, near, allocator)) {
      if (!cursor.next()) {
        return range.to();
      }
      return cursor.archived() == null ? cursor.frame().baseOffset() : cursor.archived().base();
    }
  }

  private FrameCursor headers(OffsetRange range, long from, BufferAllocator allocator) throws IOException {
    return new FrameCursor(topic.partition(range.partition()), from, range.to(), allocator, FrameCursor.HEADERS);
  }
}
