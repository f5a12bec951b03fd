package dev.headrace.spark.operators;

import org.apache.spark.sql.Row;

/** A kept row. It {@code waits} while nothing has matched it and it is to come out alone in the end. */
record TimedRow(long time, Object arrival, boolean waits, Row row) {
  TimedRow settled() {
    return new TimedRow(time, arrival, false, row);
  }
}
