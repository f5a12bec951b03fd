package dev.headrace.spark;

import com.github.luben.zstd.Zstd;
import org.apache.arrow.flatbuf.CompressionType;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/** A buffer of a compressed batch: eight bytes say how long it was, -1 that it is as it was. */
final class CompressedBuffer {
  private static final int LENGTH = 8;
  private static final long STORED = -1;
  private static final long LONGEST = 1L << 31;

  private CompressedBuffer() {}

  /** The bytes as they were. The caller owns one reference. */
  static ArrowBuf open(ArrowBuf buffer, byte codec, BufferAllocator allocator) {
    long given = buffer.capacity();
    if (given == 0) {
      buffer.getReferenceManager().retain();
      return buffer;
    }
    long length = given < LENGTH ? -2 : buffer.getLong(0);
    if (length == STORED) {
      buffer.getReferenceManager().retain();
      return buffer.slice(LENGTH, given - LENGTH);
    }
    if (length < 0 || length > LONGEST) {
      throw new IllegalStateException("a frame's compressed buffer has no sensible length");
    }
    ArrowBuf opened = allocator.buffer(length);
    try {
      decompress(codec, buffer.memoryAddress() + LENGTH, given - LENGTH, opened.memoryAddress(), length);
      return opened.writerIndex(length);
    } catch (RuntimeException error) {
      opened.close();
      throw error;
    }
  }

  private static void decompress(byte codec, long source, long sourceLength, long target, long targetLength) {
    switch (codec) {
      case CompressionType.LZ4_FRAME -> Lz4Frame.decompress(source, sourceLength, target, targetLength);
      case CompressionType.ZSTD -> {
        long written = Zstd.decompressUnsafe(target, targetLength, source, sourceLength);
        if (Zstd.isError(written) || written != targetLength) {
          throw new IllegalStateException("a frame's compressed bytes are not what Zstandard writes");
        }
      }
      default -> throw new IllegalStateException("a frame is compressed by an unknown codec %d".formatted(codec));
    }
  }
}
