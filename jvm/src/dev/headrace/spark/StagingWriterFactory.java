package dev.headrace.spark;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.write.DataWriter;
import org.apache.spark.sql.connector.write.DataWriterFactory;
import org.apache.spark.sql.connector.write.streaming.StreamingDataWriterFactory;
import org.apache.spark.sql.types.StructType;

/** Makes the writers of tasks. Travels to them, so it holds only what can. */
record StagingWriterFactory(String logFolder, String transaction, String routes, StructType schema)
    implements DataWriterFactory, StreamingDataWriterFactory {
  @Override
  public DataWriter<InternalRow> createWriter(int partition, long taskId) {
    return new StagingWriter(this, transaction, partition, taskId);
  }

  @Override
  public DataWriter<InternalRow> createWriter(int partition, long taskId, long epoch) {
    return new StagingWriter(this, Transaction.name(transaction, epoch), partition, taskId);
  }
}
