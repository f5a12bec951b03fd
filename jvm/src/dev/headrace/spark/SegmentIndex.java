package dev.headrace.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.zip.CRC32C;

/** The sparse index beside a segment: where to start walking. A missing or foreign one only makes the walk longer. */
final class SegmentIndex {
  private static final long MAGIC = ByteBuffer.wrap("HRIDX001".getBytes()).order(ByteOrder.LITTLE_ENDIAN).getLong();
  private static final int HEADER = 32;
  private static final int ENTRY = 40;
  private static final int OFFSET = 0;
  private static final int POSITION = 8;
  private static final int ARRIVAL = 16;
  private static final int CHECKSUM = 32;

  private final ByteBuffer entries;

  private SegmentIndex(ByteBuffer entries) {
    this.entries = entries;
  }

  static SegmentIndex load(Path segment, long baseOffset, int generation) throws IOException {
    String name = segment.getFileName().toString();
    Path file = segment.resolveSibling(name.substring(0, name.lastIndexOf('.')) + ".idx");
    try {
      ByteBuffer bytes = ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN);
      boolean ours =
          bytes.limit() >= HEADER
              && bytes.getLong(0) == MAGIC
              && bytes.getInt(8) == generation
              && bytes.getLong(16) == baseOffset;
      int length = ours ? bytes.limit() - HEADER : 0;
      return new SegmentIndex(bytes.slice(bytes.limit() - length, length).order(ByteOrder.LITTLE_ENDIAN));
    } catch (NoSuchFileException error) {
      return new SegmentIndex(ByteBuffer.allocate(0));
    }
  }

  /** Position of the last indexed frame that begins at or before `offset`; -1 if there is none. */
  long positionOfOffset(long offset) {
    return lastUpTo(OFFSET, offset, POSITION);
  }

  /** Base offset of the last indexed frame whose first arrival number is at most `arrival`; -1 if there is none. */
  long offsetOfArrival(long arrival) {
    return lastUpTo(ARRIVAL, arrival, OFFSET);
  }

  private long lastUpTo(int field, long wanted, int answer) {
    int low = 0;
    int high = entries.limit() / ENTRY;
    while (low < high) {
      int middle = (low + high) >>> 1;
      if (read(middle, field) <= wanted) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low == 0 || !intact(low - 1) ? -1 : read(low - 1, answer);
  }

  /** Entries of a segment that is still written to are not synced: after a crash there may be anything. */
  private boolean intact(int entry) {
    CRC32C crc = new CRC32C();
    crc.update(entries.slice(entry * ENTRY, CHECKSUM));
    return entries.getInt(entry * ENTRY + CHECKSUM) == (int) crc.getValue();
  }

  private long read(int entry, int field) {
    return entries.getLong(entry * ENTRY + field);
  }
}
