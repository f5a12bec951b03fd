package dev.headrace.spark;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.file.Path;
import org.apache.hadoop.fs.Syncable;

/**
 * A file that is on disk when it is closed, and so is its name. It uses a plain stream, because a channel is closed
 * when its thread is interrupted, and Spark interrupts a query to stop it.
 */
final class SyncedOutputStream extends OutputStream implements Syncable {
  private final Path file;
  private final FileOutputStream out;
  private boolean closed;

  SyncedOutputStream(Path file, boolean append) throws IOException {
    this.file = file.toAbsolutePath();
    this.out = new FileOutputStream(file.toFile(), append);
  }

  @Override
  public void write(int value) throws IOException {
    out.write(value);
  }

  @Override
  public void write(byte[] bytes, int start, int length) throws IOException {
    out.write(bytes, start, length);
  }

  @Override
  public void hflush() {}

  @Override
  public void hsync() throws IOException {
    out.getFD().sync();
  }

  @Override
  public void close() throws IOException {
    if (closed) {
      return;
    }
    closed = true;
    try (out) {
      out.getFD().sync();
    }
    SyncedRawFileSystem.sync(file.getParent());
  }
}
