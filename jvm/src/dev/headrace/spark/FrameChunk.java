package dev.headrace.spark;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/** A piece of a segment in memory. It reads ahead, so that small frames do not cost a system call each. */
final class FrameChunk implements AutoCloseable {
  private final BufferAllocator allocator;
  private final int readAhead;
  private SegmentFile segment;
  private ArrowBuf buffer;
  private ByteBuffer bytes;
  private long start;
  private int filled;

  FrameChunk(BufferAllocator allocator, int readAhead) {
    this.allocator = allocator;
    this.readAhead = readAhead;
  }

  /** Whether the segment has `length` bytes at `position`; if so they are now here. */
  boolean load(SegmentFile from, long position, int length) throws IOException {
    if (holds(from, position, length)) {
      return true;
    }
    long there = from.size() - position;
    if (there < length) {
      return false; // also for a length that is nonsense: nothing is allocated for it
    }
    // Beyond a large frame the next one's header is read too: it says how much to read next.
    int wanted = Math.max(length + FrameHeader.ALIGNMENT + FrameHeader.SIZE, readAhead);
    fill(from, position, (int) Math.min(wanted, there));
    return holds(from, position, length);
  }

  private boolean holds(SegmentFile from, long position, int length) {
    return from == segment && position >= start && position + length <= start + filled;
  }

  private void fill(SegmentFile from, long position, int length) throws IOException {
    if (buffer == null || buffer.capacity() < length || buffer.refCnt() > 1) {
      release();
      buffer = allocator.buffer(length);
    }
    bytes = buffer.nioBuffer(0, (int) buffer.capacity()).order(ByteOrder.LITTLE_ENDIAN);
    bytes.limit(length);
    segment = from;
    start = position;
    filled = 0;
    from.read(bytes, position);
    filled = bytes.position();
    bytes.clear();
  }

  /** Loaded bytes, from 0 to the limit. */
  ByteBuffer bytes(long position, int length) {
    return bytes.slice((int) (position - start), length).order(ByteOrder.LITTLE_ENDIAN);
  }

  /** Loaded bytes for Arrow: whoever keeps them retains them. */
  ArrowBuf buffer(long position, int length) {
    return buffer.slice(position - start, length);
  }

  private void release() {
    if (buffer != null) {
      buffer.close();
      buffer = null;
    }
  }

  @Override
  public void close() {
    release();
  }
}
