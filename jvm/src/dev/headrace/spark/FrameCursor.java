package dev.headrace.spark;

import java.io.Closeable;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.zip.CRC32C;
import org.apache.arrow.memory.ArrowBuf;
import org.apache.arrow.memory.BufferAllocator;

/**
 * Walks the frames of one partition that hold offsets from `from` to before `to`, through all segments. `to` must not
 * be past the stable end. Quarantined offsets are passed over; anything else that is not as it should be is an error.
 */
final class FrameCursor implements Closeable {
  /** Enough for headers: bodies are skipped. */
  static final int HEADERS = 16 << 10;

  /** Small enough to stay in the processor's cache, large enough to make system calls rare. */
  static final int BODIES = 1 << 20;

  private final PartitionFolder folder;
  private final OffsetRanges quarantined;
  private final FrameChunk chunk;
  private final long to;
  private long offset;
  private SegmentFile segment;
  private long position;
  private boolean searching;
  private long damagedAt = -1;
  private FrameHeader frame;
  private PartitionArchive archive;
  private ArchivedFile archived;
  private long wanted;

  FrameCursor(PartitionFolder folder, long from, long to, BufferAllocator allocator, int readAhead) throws IOException {
    this.folder = folder;
    this.offset = from;
    this.to = to;
    this.quarantined = folder.quarantined();
    this.chunk = new FrameChunk(allocator, readAhead);
  }

  /** Go to the next frame; false if there is none before `to`. */
  boolean next() throws IOException {
    while (advanceOverQuarantined() < to) {
      if (archived == null && segment == null && !enterSegment()) {
        archived = archivedFile();
      }
      if (archived != null) {
        if (nextArchived()) {
          return true;
        }
        continue;
      }
      if (!chunk.load(segment, position, FrameHeader.SIZE)) {
        enterNextSegment();
        continue;
      }
      FrameHeader found = FrameHeader.parse(chunk.bytes(position, FrameHeader.SIZE), position);
      if (searching && (found == null || !intact(found))) {
        damagedAt = damagedAt < 0 ? position : damagedAt;
        position += FrameHeader.ALIGNMENT;
      } else if (found == null || (!searching && found.baseOffset() < offset)) {
        throw corrupt(position, "there is no frame with it");
      } else if (found.endOffset() <= offset) {
        damagedAt = -1;
        position = found.next();
      } else {
        accept(found);
        return true;
      }
    }
    return false;
  }

  private boolean enterSegment() throws IOException {
    SegmentFile found = folder.open(offset);
    if (found != null) {
      enter(found);
    }
    return found != null;
  }

  /** The archived file with `offset`, which no segment holds any more. */
  private ArchivedFile archivedFile() throws IOException {
    ArchivedFile found = archive == null ? null : archive.at(offset);
    if (found == null) {
      archive = folder.archive(); // it may have grown
      found = archive.at(offset);
    }
    if (found == null) {
      throw LogException.offsetOutOfRange(
          folder.topic(), folder.partition(), offset, "was deleted: retention moved the log's start");
    }
    return found;
  }

  private boolean nextArchived() {
    int group = archived.groupAt(offset);
    if (offset >= archived.next() || group == archived.frames().size()) {
      offset = Math.max(offset, archived.next());
      archived = null;
      return false;
    }
    frame = archived.frames().get(group);
    wanted = offset;
    offset = frame.endOffset();
    return true;
  }

  /** The archived file that the frame is a row group of; null if it is in a segment. */
  ArchivedFile archived() {
    return archived;
  }

  /** The first offset that is wanted of the frame. */
  long wanted() {
    return wanted;
  }

  /** Where to read of an archived file to, from the frame on: to its end, or to what was set aside in it. */
  long archivedUpTo() {
    return Math.min(Math.min(to, archived.next()), quarantined.firstInside(wanted));
  }

  /** Go on at an offset further on. */
  void skipTo(long further) {
    offset = further;
  }

  private long advanceOverQuarantined() {
    long outside = quarantined.firstOutside(offset);
    if (outside != offset) {
      // Nothing can be said about damaged bytes, not even their length: look for the next frame that is whole.
      searching = true;
      offset = outside;
    }
    return offset;
  }

  private void accept(FrameHeader found) {
    if (found.baseOffset() > offset && !found.hasOffsets()) {
      long at = damagedAt < 0 ? found.position() : damagedAt;
      throw corrupt(at, "offsets up to %d cannot be read".formatted(found.baseOffset() - 1));
    }
    frame = found;
    wanted = offset;
    offset = found.endOffset();
    position = found.next();
    searching = false;
    damagedAt = -1;
  }

  private void enter(SegmentFile next) throws IOException {
    close(segment);
    segment = next;
    long indexed = segment.index().positionOfOffset(offset);
    position = startsFrame(indexed) ? indexed : SegmentFile.HEADER;
    // The way from here to `offset`, some 64 KiB, may cross damage that is not in the range that was asked for.
    searching = true;
    damagedAt = -1;
  }

  /** An index may be wrong, then it is as good as none. */
  private boolean startsFrame(long indexed) throws IOException {
    if (indexed < SegmentFile.HEADER || !chunk.load(segment, indexed, FrameHeader.SIZE)) {
      return false;
    }
    FrameHeader found = FrameHeader.parse(chunk.bytes(indexed, FrameHeader.SIZE), indexed);
    return found != null && found.baseOffset() <= offset;
  }

  private void enterNextSegment() throws IOException {
    SegmentFile next = folder.open(offset);
    if (next == null) {
      close(segment); // archived, or deleted, meanwhile
      segment = null;
      return;
    }
    if (next.baseOffset() <= segment.baseOffset() && next.generation() == segment.generation()) {
      close(next);
      throw corrupt(damagedAt < 0 ? position : damagedAt, "the rest of the segment cannot be read");
    }
    enter(next);
  }

  /** The frame's header. */
  FrameHeader frame() {
    return frame;
  }

  /** The frame's batch message, checked. Valid until the next call of `next` unless retained. */
  ArrowBuf body() throws IOException {
    if (!intact(frame)) {
      throw LogException.corruptFrame(folder, wanted, segment.file(), frame.position(), "the checksum does not match");
    }
    return chunk.buffer(frame.position() + FrameHeader.SIZE, frame.bodyLength());
  }

  private boolean intact(FrameHeader header) throws IOException {
    if (!chunk.load(segment, header.position(), header.length())) {
      return false;
    }
    ByteBuffer bytes = chunk.bytes(header.position(), header.length());
    CRC32C crc = new CRC32C();
    crc.update(bytes.position(FrameHeader.CHECKED_FROM));
    return (int) crc.getValue() == header.checksum();
  }

  private LogException corrupt(long at, String what) {
    return LogException.corruptFrame(folder, offset, segment.file(), at, what);
  }

  private static void close(SegmentFile file) throws IOException {
    if (file != null) {
      file.close();
    }
  }

  @Override
  public void close() throws IOException {
    chunk.close();
    close(segment);
  }
}
