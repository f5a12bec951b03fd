package dev.headrace.spark.kafka;

import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/** A bounded range of a topic. Stream time begins with what the reader says it was where the range begins. */
record KafkaTopicBatch(Batch records, KafkaOptions asked) implements Batch {
  @Override
  public InputPartition[] planInputPartitions() {
    return StampedRange.of(records.planInputPartitions(), asked.times(), asked.floor(), asked.minLag());
  }

  @Override
  public PartitionReaderFactory createReaderFactory() {
    return new StampingReaderFactory(records.createReaderFactory(), null);
  }
}
