package dev.headrace.spark;

import org.apache.spark.unsafe.Platform;

/**
 * Decompresses an LZ4 frame from memory to memory. Arrow writes frames whose blocks refer back to the block before,
 * which the LZ4 library among Spark's jars does not read; the one that does copies through arrays, byte by byte.
 * Checksums are skipped, the log's frame has one; lengths are checked, for memory's sake.
 */
final class Lz4Frame {
  private static final int MAGIC = 0x184D2204;
  private static final int BLOCK_CHECKSUMS = 0x10;
  private static final int CONTENT_SIZE = 0x08;
  private static final int DICTIONARY = 0x01;
  private static final int STORED = 0x80000000;
  private static final int LEAST_MATCH = 4;

  private final long sourceEnd;
  private final long targetStart;
  private final long targetEnd;
  private long source;
  private long target;

  private Lz4Frame(long source, long sourceLength, long target, long targetLength) {
    this.source = source;
    this.sourceEnd = source + sourceLength;
    this.target = target;
    this.targetStart = target;
    this.targetEnd = target + targetLength;
  }

  /** Fill `targetLength` bytes; anything that does not come out at exactly that is an error. */
  static void decompress(long source, long sourceLength, long target, long targetLength) {
    Lz4Frame frame = new Lz4Frame(source, sourceLength, target, targetLength);
    int flags = frame.header();
    while (frame.block(flags)) {}
    check(frame.target == frame.targetEnd);
  }

  private int header() {
    check(int32() == MAGIC);
    int flags = int8();
    int skipped = 2 + ((flags & CONTENT_SIZE) != 0 ? 8 : 0); // block size and header checksum
    check((flags & DICTIONARY) == 0);
    source += skipped;
    return flags;
  }

  private boolean block(int flags) {
    int word = int32();
    if (word == 0) {
      return false;
    }
    long end = source + (word & ~STORED);
    check(end <= sourceEnd);
    if ((word & STORED) != 0) {
      copy(end - source);
    } else {
      while (sequence(end)) {}
    }
    source = end + ((flags & BLOCK_CHECKSUMS) != 0 ? 4 : 0);
    return true;
  }

  /** Some bytes as they are, then some that were there before. False after the last. */
  private boolean sequence(long end) {
    int token = int8();
    copy(length(token >>> 4));
    if (source >= end) {
      return false;
    }
    int distance = int8() | int8() << 8;
    repeat(distance, length(token & 15) + LEAST_MATCH);
    return source < end;
  }

  private long length(int nibble) {
    long length = nibble;
    if (nibble == 15) {
      int more;
      do {
        more = int8();
        length += more;
      } while (more == 255);
    }
    return length;
  }

  private void copy(long length) {
    check(length <= sourceEnd - source && length <= targetEnd - target);
    if (length <= 16 && sourceEnd - source >= 16 && targetEnd - target >= 16) {
      Platform.putLong(null, target, Platform.getLong(null, source));
      Platform.putLong(null, target + 8, Platform.getLong(null, source + 8));
    } else {
      Platform.copyMemory(null, source, null, target, length);
    }
    source += length;
    target += length;
  }

  private void repeat(int distance, long length) {
    long from = target - distance;
    check(distance > 0 && from >= targetStart && length <= targetEnd - target);
    long end = target + length;
    if (distance >= 8) {
      // Eight bytes at a time never read what they are writing; those past the end are written again later.
      long safe = Math.min(end, targetEnd - 8);
      for (; target < safe; target += 8, from += 8) {
        Platform.putLong(null, target, Platform.getLong(null, from));
      }
      from -= Math.max(0, target - end);
      target = Math.min(target, end);
    }
    for (; target < end; target++, from++) {
      Platform.putByte(null, target, Platform.getByte(null, from));
    }
  }

  private int int8() {
    check(source < sourceEnd);
    return Platform.getByte(null, source++) & 0xFF;
  }

  private int int32() {
    check(source + 4 <= sourceEnd);
    int value = Platform.getInt(null, source);
    source += 4;
    return value;
  }

  private static void check(boolean fine) {
    if (!fine) {
      throw new IllegalStateException("a frame's compressed bytes are not what LZ4 writes");
    }
  }
}
