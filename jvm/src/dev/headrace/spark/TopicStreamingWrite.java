package dev.headrace.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.UUID;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.types.StructType;

/** A query's batches, each one transaction with an identity, so that a repeat changes nothing (contract 7). */
final class TopicStreamingWrite implements StreamingWrite {
  private final WriteOptions options;
  private final StructType schema;
  private final String run;

  TopicStreamingWrite(WriteOptions options, StructType schema) {
    this.options = options;
    this.schema = schema;
    // What an earlier run staged and never committed must not be mixed with this one's.
    this.run = "%s-v%d-%s".formatted(options.query(), options.version(), UUID.randomUUID());
  }

  @Override
  public StreamingDataWriterFactory createStreamingWriterFactory(PhysicalWriteInfo info) {
    return new StagingWriterFactory(options.path().toString(), run, options.routes().toString(), schema);
  }

  /** The commit names the attempts that count. */
  @Override
  public boolean useCommitCoordinator() {
    return false;
  }

  @Override
  public void commit(long epoch, WriterCommitMessage[] messages) {
    BatchSize.took(options, messages);
    try {
      BatchIdentity identity = BatchIdentity.of(options, epoch);
      String transaction = Transaction.name(run, epoch);
      if (identity.arrival() <= options.knownUntil()) {
        Transaction.abort(options.path(), transaction);
        Transaction.commit(options.path(), transaction, new WriterCommitMessage[0], identity);
        return;
      }
      Transaction.commit(options.path(), transaction, messages, identity);
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  @Override
  public void abort(long epoch, WriterCommitMessage[] messages) {
    Transaction.abort(options.path(), Transaction.name(run, epoch));
  }
}
