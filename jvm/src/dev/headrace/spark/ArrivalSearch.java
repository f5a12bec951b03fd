package dev.headrace.spark;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.TreeSet;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.memory.RootAllocator;

/** Finds arrival numbers in a partition. They grow with the offsets, so frames, index and rows can be searched. */
final class ArrivalSearch {
  private ArrivalSearch() {}

  /** The first offset of the partition whose record's arrival number is at least `arrival`; its end if none is. */
  static long offsetAt(TopicDefinition topic, int partition, PartitionEnds ends, long arrival) throws IOException {
    if (ends.start() >= ends.end()) {
      return ends.end();
    }
    PartitionFolder folder = topic.partition(partition);
    long from = Math.max(ends.start(), nearestBefore(folder, ends, arrival));
    try (BufferAllocator allocator = new RootAllocator();
        FrameCursor cursor = new FrameCursor(folder, from, ends.end(), allocator, FrameCursor.HEADERS)) {
      while (cursor.next()) {
        FrameHeader frame = cursor.frame();
        if (frame.lastArrival() >= arrival) {
          FrameRows rows = FrameRows.of(topic, partition, frame, allocator);
          return Math.max(ends.start(), rows.offset(rows.below(arrival)));
        }
      }
      return ends.end();
    }
  }

  /** The base offset of a frame that is known to begin before `arrival` did, as late as the indexes can tell. */
  private static long nearestBefore(PartitionFolder folder, PartitionEnds ends, long arrival) throws IOException {
    TreeSet<Long> all = folder.baseOffsets();
    Long oldest = all.floor(ends.start());
    List<Long> bases = new ArrayList<>(all.subSet(oldest == null ? ends.start() : oldest, ends.end()));
    int low = 0;
    int high = bases.size();
    long nearest = -1;
    while (low < high) {
      int middle = (low + high) >>> 1;
      long indexed = indexedBefore(folder, bases.get(middle), arrival);
      if (indexed >= 0) {
        nearest = indexed;
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return nearest;
  }

  private static long indexedBefore(PartitionFolder folder, long baseOffset, long arrival) throws IOException {
    try (SegmentFile segment = folder.open(baseOffset)) {
      return segment == null ? -1 : segment.index().offsetOfArrival(arrival);
    }
  }
}
