package dev.headrace.spark;

import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructType;

/** Takes Spark's wish for fewer columns. Spark has it for batches only; streams use the option `columns`. */
final class TopicScanBuilder implements ScanBuilder, SupportsPushDownRequiredColumns {
  private final ReadOptions options;
  private final TopicDefinition topic;
  private StructType schema;

  TopicScanBuilder(ReadOptions options, StructType schema) {
    this.options = options;
    this.topic = TopicDefinition.load(options.path(), options.topic());
    this.schema = Projection.check(topic.sparkSchema(), schema);
  }

  @Override
  public void pruneColumns(StructType required) {
    schema = required;
  }

  @Override
  public Scan build() {
    return new TopicScan(options, topic, schema);
  }
}
