package dev.headrace.spark;

import java.nio.ByteBuffer;

/** The 128 bytes before a frame's batch, as far as readers need them. Its checksum is checked with the body's. */
record FrameHeader(
    long position,
    int checksum,
    int bodyLength,
    int rows,
    long baseOffset,
    long endOffset,
    long firstArrival,
    long lastArrival,
    long maxLag,
    int schemaVersion,
    int flags) {
  static final int SIZE = 128;
  static final int ALIGNMENT = 64;
  static final int CHECKED_FROM = 8;
  private static final int MAGIC = 'H' | 'R' << 8 | 'F' << 16 | '1' << 24;
  private static final int HAS_OFFSETS = 1;
  private static final int COMPRESSIONS = 3;
  private static final int MAX_BODY = 1 << 30;

  /** The header in `bytes`, which lie at `position` of the segment, or null if they cannot be one. */
  static FrameHeader parse(ByteBuffer bytes, long position) {
    int at = bytes.position();
    FrameHeader header =
        new FrameHeader(
            position,
            bytes.getInt(at + 4),
            bytes.getInt(at + 8),
            bytes.getInt(at + 12),
            bytes.getLong(at + 16),
            bytes.getLong(at + 24),
            bytes.getLong(at + 32),
            bytes.getLong(at + 40),
            bytes.getLong(at + 64),
            bytes.getInt(at + 96),
            bytes.getShort(at + 100));
    int compression = bytes.getShort(at + 102);
    boolean known = compression >= 0 && compression < COMPRESSIONS;
    return bytes.getInt(at) == MAGIC && known && header.plausible() ? header : null;
  }

  private boolean plausible() {
    return bodyLength > 0
        && bodyLength <= MAX_BODY
        && (rows > 0 || rows == 0 && hasOffsets())
        && baseOffset >= 0
        && endOffset - baseOffset >= rows
        && lastArrival - firstArrival >= rows - 1;
  }

  /** Whether the batch starts with a column `$offset`, because offsets have gaps. */
  boolean hasOffsets() {
    return (flags & HAS_OFFSETS) != 0;
  }

  /** Whether row i arrived as number `firstArrival + i`: no other partition got a record in between. */
  boolean arrivedInOnePiece() {
    return lastArrival - firstArrival == rows - 1;
  }

  int length() {
    return SIZE + bodyLength;
  }

  /** Where the next frame begins. */
  long next() {
    return (position + length() + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  }
}
