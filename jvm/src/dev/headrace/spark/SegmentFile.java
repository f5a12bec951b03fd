package dev.headrace.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.channels.FileChannel;
import java.nio.file.Path;
import java.util.zip.CRC32C;

/**
 * An open segment. It is read at positions instead of mapped: the copy stays in the cache of the processor, costs no
 * more than the page faults of a map, and nothing can go away under a pointer. A file that is renamed over or deleted
 * meanwhile stays readable.
 */
final class SegmentFile implements Closeable {
  static final int HEADER = 64;
  private static final long MAGIC = ByteBuffer.wrap("HRSEG001".getBytes()).order(ByteOrder.LITTLE_ENDIAN).getLong();

  private final Path file;
  private final FileChannel channel;
  private final long baseOffset;
  private final int generation;

  private SegmentFile(Path file, FileChannel channel, long baseOffset, int generation) {
    this.file = file;
    this.channel = channel;
    this.baseOffset = baseOffset;
    this.generation = generation;
  }

  static SegmentFile open(PartitionFolder folder, long baseOffset) throws IOException {
    Path file = folder.segment(baseOffset);
    FileChannel channel = FileChannel.open(file);
    try {
      ByteBuffer header = ByteBuffer.allocate(HEADER).order(ByteOrder.LITTLE_ENDIAN);
      readFully(channel, header, 0);
      check(folder, baseOffset, file, header);
      return new SegmentFile(file, channel, baseOffset, header.getInt(24));
    } catch (IOException | RuntimeException error) {
      channel.close();
      throw error;
    }
  }

  private static void check(PartitionFolder folder, long baseOffset, Path file, ByteBuffer header) {
    CRC32C crc = new CRC32C();
    crc.update(header.array(), 0, 28);
    boolean whole =
        header.position() == HEADER && header.getLong(0) == MAGIC && header.getInt(28) == (int) crc.getValue();
    if (!whole || header.getInt(12) != folder.partition() || header.getLong(16) != baseOffset) {
      throw LogException.corruptFrame(folder, baseOffset, file, 0, "the segment's header is damaged");
    }
    int topicId = header.getInt(8);
    if (topicId != folder.topicId() && (folder.forkedFrom() == 0 || topicId != folder.forkedFrom())) {
      throw LogException.topicReplaced(folder.topic(), folder.topicId(), header.getInt(8));
    }
  }

  Path file() {
    return file;
  }

  long baseOffset() {
    return baseOffset;
  }

  int generation() {
    return generation;
  }

  /** Bytes in the file now; it may grow. */
  long size() throws IOException {
    return channel.size();
  }

  SegmentIndex index() throws IOException {
    return SegmentIndex.load(file, baseOffset, generation);
  }

  /** Fill `into` from `position` on, as far as the file goes. */
  void read(ByteBuffer into, long position) throws IOException {
    readFully(channel, into, position);
  }

  private static void readFully(FileChannel channel, ByteBuffer into, long position) throws IOException {
    int start = into.position();
    while (into.hasRemaining()) {
      if (channel.read(into, position + into.position() - start) < 0) {
        return;
      }
    }
  }

  @Override
  public void close() throws IOException {
    channel.close();
  }
}
