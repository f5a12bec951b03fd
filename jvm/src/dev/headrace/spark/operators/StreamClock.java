package dev.headrace.spark.operators;

import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/**
 * The stream time of several inputs together: the largest event time that arrived before a row, in any of them. The log
 * stamps a record with that of its own topic only. All rows have one key here, and come in order of arrival.
 */
public final class StreamClock extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;

  private transient ValueState<Long> latest;

  private StreamClock() {}

  public static Dataset<Row> stamp(Dataset<Row> rows) {
    return Change.run(rows, new StreamClock(), TimeMode.None(), rows.schema());
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    latest = getHandle().getValueState("stream_time", Encoders.LONG(), TTLConfig.NONE());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    long before = latest.exists() ? latest.get() : -1L;
    return new AbstractIterator<>() {
      private long now = before;

      @Override
      public boolean hasNext() {
        if (rows.hasNext()) {
          return true;
        }
        latest.update(now);
        return false;
      }

      @Override
      public Row next() {
        Row row = rows.next();
        now = Math.max(now, row.getLong(Change.STREAM_TIME));
        Row stamped = Change.at(row, now);
        now = Math.max(now, row.getLong(Change.TIME));
        return stamped;
      }
    };
  }
}
