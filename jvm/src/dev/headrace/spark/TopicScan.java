package dev.headrace.spark;

import org.apache.spark.SparkContext;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;

/** A topic and the columns of it that are wanted; becomes a batch or a stream. */
record TopicScan(ReadOptions options, TopicDefinition topic, StructType readSchema) implements Scan {
  /** Tasks of unequal length even out if there are a few more of them than cores. */
  private static final int BATCH_TASKS_PER_CORE = 3;

  @Override
  public String description() {
    return "headrace topic %s %s".formatted(topic.name(), readSchema.simpleString());
  }

  /** Said here, because otherwise Spark plans all tasks just to ask the first. */
  @Override
  public ColumnarSupportMode columnarSupportMode() {
    return ColumnarSupportMode.SUPPORTED;
  }

  @Override
  public Batch toBatch() {
    return new TopicBatch(this, planner(BATCH_TASKS_PER_CORE));
  }

  @Override
  public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
    return new TopicStream(this, planner(1), CutGroup.of(options, checkpointLocation));
  }

  private RangePlanner planner(int tasksPerCore) {
    int cores = SparkContext.getOrCreate().defaultParallelism();
    return new RangePlanner(topic, options.minLag(), cores * tasksPerCore);
  }

  PartitionReaderFactory readerFactory() {
    return new RangeReaderFactory(
        options.path().toString(), topic.name(), readSchema, options.clock(), options.minLag());
  }
}
