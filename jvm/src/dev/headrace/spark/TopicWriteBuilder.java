package dev.headrace.spark;

import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.Write;
import org.apache.spark.sql.connector.write.streaming.StreamingWrite;
import org.apache.spark.sql.internal.connector.SupportsStreamingUpdateAsAppend;

/** In update mode a changed row is appended: a topic is a log of changes. */
final class TopicWriteBuilder implements SupportsStreamingUpdateAsAppend {
  private final LogicalWriteInfo info;

  TopicWriteBuilder(LogicalWriteInfo info) {
    this.info = info;
  }

  @Override
  public Write build() {
    WriteOptions options = WriteOptions.parse(info.options());
    return new Write() {
      @Override
      public String description() {
        return "headrace topics " + options.routes().findValuesAsText("topic");
      }

      @Override
      public BatchWrite toBatch() {
        return new TopicBatchWrite(options, info.schema());
      }

      @Override
      public StreamingWrite toStreaming() {
        return new TopicStreamingWrite(options.checkedForStreaming(), info.schema());
      }
    };
  }
}
