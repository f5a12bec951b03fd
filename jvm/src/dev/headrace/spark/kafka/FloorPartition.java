package dev.headrace.spark.kafka;

import org.apache.spark.sql.connector.read.InputPartition;

/** One row that says: nothing below this is admitted any more. */
record FloorPartition(long floor) implements InputPartition {
  private static final long serialVersionUID = 1L;
}
