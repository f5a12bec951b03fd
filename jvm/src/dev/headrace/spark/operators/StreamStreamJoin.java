package dev.headrace.spark.operators;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Pairs of rows of two streams with the same key, whose times are near each other: {@code left - before <= right <= left
 * + after}.
 *
 * <p>A row is late if nothing may match it any more when it arrives: stream time (of both inputs, see {@link
 * StreamClock}) has passed its time plus reach plus grace. A late row comes out alone; if its side is not kept, with
 * {@code $tombstone}, which joined rows never have. A row of a kept side that nothing matched comes out alone: at once ({@code eager}), or when stream
 * time has passed that same moment, which a row of the same key sees, or else the timer, once the watermark is there.
 * The watermark is the largest time of earlier batches, so it is never ahead of a later row's stream time.
 */
public final class StreamStreamJoin extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final long before;
  private final long after;
  private final long grace;
  private final boolean eager;
  private final boolean keepLeft;
  private final boolean keepRight;
  private final StructType leftColumns;
  private final StructType rightColumns;
  private transient TimedRows left;
  private transient TimedRows right;

  private StreamStreamJoin(
      long before, long after, long grace, boolean eager, boolean keepLeft, boolean keepRight, Dataset<Row> rows) {
    this.before = before;
    this.after = after;
    this.grace = grace;
    this.eager = eager;
    this.keepLeft = keepLeft;
    this.keepRight = keepRight;
    this.leftColumns = Change.part(rows, Change.LEFT);
    this.rightColumns = Change.part(rows, Change.RIGHT);
  }

  public static Dataset<Row> join(
      Dataset<Row> rows,
      long before,
      long after,
      long grace,
      boolean eager,
      boolean keepLeft,
      boolean keepRight) {
    StreamStreamJoin processor = new StreamStreamJoin(before, after, grace, eager, keepLeft, keepRight, rows);
    return Change.run(rows, processor, TimeMode.EventTime(), rows.schema());
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    long width = Math.max(1, before + after);
    left = new TimedRows(getHandle(), "left", leftColumns, width);
    right = new TimedRows(getHandle(), "right", rightColumns, width);
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    List<Row> out = new ArrayList<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      if (!row.getBoolean(Change.TOMBSTONE)) {
        take(row, out);
      }
    }
    left.flush();
    right.flush();
    return CollectionConverters.asScala(out.iterator());
  }

  private void take(Row row, List<Row> out) {
    boolean fromLeft = Change.fromLeft(row);
    long time = row.getLong(Change.TIME);
    long closes = closes(fromLeft, time);
    long now = row.getLong(Change.STREAM_TIME);
    if (closes < now) {
      // On a side that is kept it is in the result all the same; only matches it can have none.
      boolean lost = !(fromLeft ? keepLeft : keepRight);
      out.add(Change.with(row, time, lost, row.getStruct(Change.LEFT), row.getStruct(Change.RIGHT)));
      return;
    }
    now = Math.max(now, time);
    if (!eager) {
      padClosed(row, now, out);
    }
    long from = time - (fromLeft ? before : after);
    long to = time + (fromLeft ? after : before);
    Row own = row.getStruct(fromLeft ? Change.LEFT : Change.RIGHT);
    boolean matched = false;
    for (TimedRow other : (fromLeft ? right : left).between(from, to)) {
      matched = true;
      if (other.waits()) {
        (fromLeft ? right : left).settle(other);
      }
      out.add(pair(row, Math.max(time, other.time()), fromLeft ? own : other.row(), fromLeft ? other.row() : own));
    }
    boolean alone = !matched && (fromLeft ? keepLeft : keepRight);
    if (alone && eager) {
      out.add(pair(row, time, fromLeft ? own : null, fromLeft ? null : own));
    }
    boolean waits = alone && !eager;
    (fromLeft ? left : right).add(new TimedRow(time, waits, own));
    if (waits) {
      getHandle().registerTimer(closes + 1);
    }
    getHandle().registerTimer((fromLeft ? left : right).lastOfBucket(time) + before + after + grace + 1);
  }

  /** The last moment of stream time at which a row may still be matched by one that is not late. */
  private long closes(boolean fromLeft, long time) {
    return time + (fromLeft ? after : before) + grace;
  }

  private void padClosed(Row row, long now, List<Row> out) {
    if (keepLeft) {
      for (TimedRow alone : left.waitingUntil(now - after - grace - 1)) {
        left.settle(alone);
        out.add(pair(row, alone.time(), alone.row(), null));
      }
    }
    if (keepRight) {
      for (TimedRow alone : right.waitingUntil(now - before - grace - 1)) {
        right.settle(alone);
        out.add(pair(row, alone.time(), null, alone.row()));
      }
    }
  }

  private static Row pair(Row row, long time, Row left, Row right) {
    return Change.with(row, time, false, left, right);
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    long now = timers.getCurrentWatermarkInMs();
    List<Row> out = new ArrayList<>();
    if (!eager) {
      padClosed(RowFactory.create(key.get(0), 0, Long.MAX_VALUE, now, now, false, null, null), now, out);
    }
    left.forget(now - before - after - grace);
    right.forget(now - before - after - grace);
    left.flush();
    right.flush();
    return CollectionConverters.asScala(out.iterator());
  }
}
