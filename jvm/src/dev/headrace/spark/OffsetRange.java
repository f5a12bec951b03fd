package dev.headrace.spark;

import org.apache.spark.sql.connector.read.InputPartition;

/** What one task reads: the records of a partition with from ≤ offset < to. */
record OffsetRange(int partition, long from, long to) implements InputPartition {}
