package dev.headrace.spark;

import java.util.List;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.StructType;

/** Takes Spark's wish for fewer columns. Spark has it for batches only; streams use the option `columns`. */
final class TopicScanBuilder implements ScanBuilder, SupportsPushDownRequiredColumns {
  private final ReadOptions options;
  private final TopicDefinition topic;
  private final StructType all;
  private StructType schema;

  TopicScanBuilder(ReadOptions options, StructType schema) {
    this.options = options;
    this.topic = TopicDefinition.load(options.path(), options.topic());
    this.all = Projection.check(topic.sparkSchema(), schema);
    this.schema = all;
  }

  @Override
  public void pruneColumns(StructType pruned) {
    StructType required = whole(pruned);
    boolean clocked = !options.clock().isEmpty() && has(required, TopicDefinition.STREAM_TIME);
    // Stream times of several topics are found by arrival.
    schema =
        clocked && !has(required, TopicDefinition.ARRIVAL)
            ? required.add(topic.sparkSchema().apply(TopicDefinition.ARRIVAL))
            : required;
  }

  /** Columns are read whole: of a struct whose fields are not all needed, Spark would ask for some. */
  private StructType whole(StructType pruned) {
    StructType columns = new StructType();
    for (String name : pruned.fieldNames()) {
      columns = columns.add(all.apply(name));
    }
    return columns;
  }

  private static boolean has(StructType columns, String name) {
    return List.of(columns.fieldNames()).contains(name);
  }

  @Override
  public Scan build() {
    return new TopicScan(options, topic, schema);
  }
}
