package dev.headrace.spark;

import java.nio.file.Path;
import java.util.List;

/** A Parquet file of the archive: its row groups are frames, in order, and stand for all offsets from base to next. */
record ArchivedFile(Path file, long base, long next, int version, List<FrameHeader> frames) {
  /** Number of the first row group that ends after `offset`. */
  int groupAt(long offset) {
    int number = 0;
    while (number < frames.size() && frames.get(number).endOffset() <= offset) {
      number++;
    }
    return number;
  }
}
