package dev.headrace.spark.operators;

import org.apache.spark.sql.Row;

/** A row of a stream that waits for others to match it. {@code waits}: none did, and it has not come out alone. */
record TimedRow(long time, boolean waits, Row row) {}
