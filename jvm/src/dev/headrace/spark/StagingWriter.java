package dev.headrace.spark;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.file.Path;
import org.apache.arrow.memory.BufferAllocator;
import org.apache.arrow.vector.VectorSchemaRoot;
import org.apache.arrow.vector.ipc.ArrowStreamWriter;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.execution.arrow.ArrowWriter;
import org.apache.spark.sql.util.ArrowUtils;

/** One task's rows, streamed to the owner as Arrow batches. Many tasks have none, so it connects with the first. */
final class StagingWriter implements DataWriter<InternalRow> {
  private static final int ROWS = 16_384;
  /** Rows may be a megabyte each; a batch of them must still fit. */
  private static final long BYTES = 8 << 20;
  private static final int WEIGH_EVERY = 64;

  private final StagingWriterFactory what;
  private final String transaction;
  private final int task;
  private final long attempt;
  private final BufferAllocator allocator;
  private final VectorSchemaRoot root;
  private final ArrowWriter rows;
  private final long began = System.nanoTime();
  private OwnerConnection owner;
  private ArrowStreamWriter stream;
  private int pending;
  private long bytes;
  private long written;

  StagingWriter(StagingWriterFactory what, String transaction, int task, long attempt) {
    this.what = what;
    this.transaction = transaction;
    this.task = task;
    this.attempt = attempt;
    this.allocator = ArrowUtils.rootAllocator().newChildAllocator("headrace", 0, Long.MAX_VALUE);
    this.root = VectorSchemaRoot.create(ArrowUtils.toArrowSchema(what.schema(), "UTC", true), allocator);
    this.rows = ArrowWriter.create(root);
  }

  @Override
  public void write(InternalRow row) throws IOException {
    rows.write(row);
    pending++;
    bytes += added(row);
    if (pending == ROWS || bytes > BYTES) {
      flush();
    }
  }

  /** A row of Spark's own knows its size. Arrow has to be asked seldom: of a column of lists it counts all rows again. */
  private long added(InternalRow row) {
    if (row instanceof UnsafeRow sized) {
      return sized.getSizeInBytes();
    }
    return pending % WEIGH_EVERY == 0 ? rows.sizeInBytes() - bytes : 0;
  }

  private void flush() throws IOException {
    rows.finish();
    if (owner == null) {
      owner = OwnerConnection.open(Path.of(what.logFolder()));
    }
    try {
      if (stream == null) {
        begin();
      }
      stream.writeBatch();
    } catch (IOException error) {
      throw refused(error);
    }
    rows.reset();
    written += pending;
    pending = 0;
    bytes = 0;
  }

  private void begin() throws IOException {
    ObjectNode request =
        OwnerConnection.request("stage")
            .put("arrow", true)
            .put("transaction", transaction)
            .put("task", task)
            .put("attempt", attempt);
    request.set("routes", new ObjectMapper().readTree(what.routes()));
    owner.send(request);
    stream = new ArrowStreamWriter(root, null, owner.channel());
    stream.start();
  }

  /** An owner that cannot take the rows says why and hangs up; its word is better than `broken pipe`. */
  private RuntimeException refused(IOException error) {
    try {
      owner.answer();
      return owner.lost(error);
    } catch (LogException said) {
      return said;
    }
  }

  @Override
  public WriterCommitMessage commit() throws IOException {
    if (pending > 0) {
      flush();
    }
    if (stream != null) {
      try {
        stream.end();
      } catch (IOException error) {
        throw refused(error);
      }
      long taken = owner.answer().path("rows").asLong(-1);
      if (taken != written) {
        throw LogException.fromOwner("log", "the owner took %d of %d rows".formatted(taken, written));
      }
    }
    return new StagedTask(task, attempt, written, System.nanoTime() - began);
  }

  /** Closing the connection before the stream's end is enough: the owner forgets the attempt. */
  @Override
  public void abort() {}

  @Override
  public void close() throws IOException {
    if (owner != null) {
      owner.close();
    }
    root.close();
    allocator.close();
  }
}
