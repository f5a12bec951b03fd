package dev.headrace.spark;

import org.apache.spark.sql.connector.write.WriterCommitMessage;

/** A task's word to the driver: what of it the owner holds, and what it took. A task without rows holds nothing there. */
record StagedTask(int task, long attempt, long rows, long nanos) implements WriterCommitMessage {}
