package dev.headrace.spark;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.VarHandle;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.nio.file.attribute.BasicFileAttributes;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * The file in which the owner publishes what may be read. It is mapped and read under a sequence lock: the owner
 * makes the sequence odd while it writes, so what was copied counts only if the sequence was even and is the same
 * after.
 */
final class StableFile {
  private static final VarHandle LONGS = MethodHandles.byteBufferViewVarHandle(long[].class, ByteOrder.LITTLE_ENDIAN);
  private static final long MAGIC = ByteBuffer.wrap("HRSTABLE".getBytes()).order(ByteOrder.LITTLE_ENDIAN).getLong();
  private static final int HEADER = 64;
  private static final int SEQUENCE = 16;
  private static final int ARRIVAL = 24;
  private static final int VERSION = 1;
  /** The sequence also stays odd while an owner recovers the log, which takes a while after a crash. */
  private static final long PATIENCE = TimeUnit.SECONDS.toNanos(20);
  private static final long WAIT = TimeUnit.MILLISECONDS.toNanos(100);
  private static final long LOOK_EVERY = TimeUnit.MILLISECONDS.toNanos(2);

  private final Path file;
  private MappedByteBuffer map;
  private Object mappedFile;

  StableFile(Path logFolder) {
    this.file = logFolder.resolve("stable");
  }

  /** What is visible now; never half of what the owner is just writing. */
  synchronized LogMoment read() {
    long deadline = System.nanoTime() + PATIENCE;
    while (true) {
      remapIfReplacedOrGrown();
      LogMoment moment = tryRead();
      if (moment != null) {
        return moment;
      }
      if (System.nanoTime() > deadline) {
        throw LogException.ownerLost(
            "`%s` stays locked: its owner recovers, or died while publishing; start it again".formatted(file));
      }
      if (Thread.currentThread().isInterrupted()) {
        throw new UncheckedIOException(new InterruptedIOException());
      }
      LockSupport.parkNanos(50_000);
    }
  }

  /**
   * Wait until something was published after `moment`, but not for long. This looks at one number in memory, which
   * costs far less than Spark's own way of asking again and again, and sees it sooner.
   */
  void awaitAfter(LogMoment moment) {
    MappedByteBuffer watched = mapped();
    long deadline = System.nanoTime() + WAIT;
    while ((long) LONGS.getAcquire(watched, ARRIVAL) == moment.arrival()
        && System.nanoTime() < deadline
        && !Thread.currentThread().isInterrupted()) {
      LockSupport.parkNanos(LOOK_EVERY);
    }
  }

  private synchronized MappedByteBuffer mapped() {
    remapIfReplacedOrGrown();
    return map;
  }

  private LogMoment tryRead() {
    long before = (long) LONGS.getAcquire(map, SEQUENCE);
    int used = map.getInt(40);
    int length = used * LogMoment.SLOT;
    // A length beyond the map is a torn read, or the file has grown since it was mapped: both pass.
    if ((before & 1) == 1 || used < 0 || HEADER + length > map.capacity() || map.getLong(0) != MAGIC) {
      return null;
    }
    if (map.getInt(8) != VERSION) {
      throw LogException.usage(
          "the log in `%s` is of version %d, not %d".formatted(file.getParent(), map.getInt(8), VERSION));
    }
    long arrival = map.getLong(ARRIVAL);
    byte[] slots = new byte[length];
    map.get(HEADER, slots);
    VarHandle.acquireFence();
    if ((long) LONGS.getAcquire(map, SEQUENCE) != before) {
      return null;
    }
    return new LogMoment(arrival, ByteBuffer.wrap(slots).order(ByteOrder.LITTLE_ENDIAN));
  }

  private void remapIfReplacedOrGrown() {
    try {
      BasicFileAttributes now = Files.readAttributes(file, BasicFileAttributes.class);
      if (map == null || now.size() != map.capacity() || !now.fileKey().equals(mappedFile)) {
        map = map(now.size());
        mappedFile = now.fileKey();
      }
    } catch (NoSuchFileException error) {
      throw LogException.usage("there is no log in `%s`".formatted(file.getParent()));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private MappedByteBuffer map(long size) throws IOException {
    try (FileChannel channel = FileChannel.open(file)) {
      MappedByteBuffer mapped = channel.map(FileChannel.MapMode.READ_ONLY, 0, size);
      mapped.order(ByteOrder.LITTLE_ENDIAN);
      if (size < HEADER) {
        throw LogException.usage("`%s` is not a log".formatted(file.getParent()));
      }
      return mapped;
    }
  }
}
