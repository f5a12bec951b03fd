package dev.headrace.spark;

import java.util.UUID;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.PhysicalWriteInfo;
import org.apache.spark.sql.connector.write.WriterCommitMessage;
import org.apache.spark.sql.types.StructType;

/**
 * A batch as one transaction. Without the options `query` and `offsets` it has no identity: written twice, it is there
 * twice. With them it is the only batch of that query, and a repeat changes nothing.
 */
final class TopicBatchWrite implements BatchWrite {
  private final WriteOptions options;
  private final StructType schema;
  private final String transaction = "batch-" + UUID.randomUUID();

  TopicBatchWrite(WriteOptions options, StructType schema) {
    this.options = options;
    this.schema = schema;
  }

  @Override
  public DataWriterFactory createBatchWriterFactory(PhysicalWriteInfo info) {
    return new StagingWriterFactory(options.path().toString(), transaction, options.routes().toString(), schema);
  }

  /** The commit names the attempts that count. */
  @Override
  public boolean useCommitCoordinator() {
    return false;
  }

  @Override
  public void commit(WriterCommitMessage[] messages) {
    Transaction.commit(options.path(), transaction, messages, BatchIdentity.ofBatch(options));
  }

  @Override
  public void abort(WriterCommitMessage[] messages) {
    Transaction.abort(options.path(), transaction);
  }
}
