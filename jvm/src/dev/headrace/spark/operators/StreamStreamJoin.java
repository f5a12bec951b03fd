package dev.headrace.spark.operators;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Pairs of rows of two streams with the same key, whose times are near each other: {@code left - before <= right <= left
 * + after}.
 *
 * <p>A row is late if nothing may match it any more when it arrives: stream time (of both inputs) has passed its time
 * plus reach plus grace. A late row comes out alone; if its side is not kept, with {@code $tombstone}, which joined rows
 * never have. A row of a kept side that nothing matched comes out alone: at once ({@code eager}), or when stream time has
 * passed that same moment, which a row of the same key sees, or else the timer, once the watermark is there. The
 * watermark is the largest time of earlier batches, so it is never ahead of a later row's stream time. Whoever sees it,
 * the row comes out with its own arrival number and, as stream time, the first moment at which nothing can match it.
 *
 * <p>{@code bounded}: there is no later batch, so whatever waits comes out. Who asked knows how far time has come, and
 * drops the rows whose stream time is beyond it.
 */
public final class StreamStreamJoin extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final long before;
  private final long after;
  private final long grace;
  private final boolean eager;
  private final boolean keepLeft;
  private final boolean keepRight;
  private final boolean bounded;
  private final StructType leftColumns;
  private final StructType rightColumns;
  private final DataType arrival;
  private final int width;
  private transient TimedRows left;
  private transient TimedRows right;

  private StreamStreamJoin(
      long before,
      long after,
      long grace,
      boolean eager,
      boolean keepLeft,
      boolean keepRight,
      boolean bounded,
      Dataset<Row> rows) {
    this.before = before;
    this.after = after;
    this.grace = grace;
    this.eager = eager;
    this.keepLeft = keepLeft;
    this.keepRight = keepRight;
    this.bounded = bounded;
    this.leftColumns = Change.part(rows, Change.LEFT);
    this.rightColumns = Change.part(rows, Change.RIGHT);
    this.arrival = rows.schema().fields()[Change.ARRIVAL].dataType();
    this.width = rows.schema().size();
  }

  public static Dataset<Row> join(
      Dataset<Row> rows,
      long before,
      long after,
      long grace,
      boolean eager,
      boolean keepLeft,
      boolean keepRight,
      boolean bounded) {
    StreamStreamJoin processor =
        new StreamStreamJoin(before, after, grace, eager, keepLeft, keepRight, bounded, rows);
    TimeMode mode = bounded ? TimeMode.None() : TimeMode.EventTime();
    return Change.run(rows, processor, mode, rows.schema());
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    long reach = Math.max(1, before + after);
    left = new TimedRows(getHandle(), "left", arrival, leftColumns, reach);
    right = new TimedRows(getHandle(), "right", arrival, rightColumns, reach);
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    List<Row> out = new ArrayList<>();
    left.load();
    right.load();
    long now = Long.MIN_VALUE;
    while (rows.hasNext()) {
      Row row = rows.next();
      now = Math.max(now, row.getLong(Change.STREAM_TIME));
      if (!row.getBoolean(Change.TOMBSTONE)) {
        take(row, out);
      }
    }
    padClosed(key, bounded ? Long.MAX_VALUE : now, out);
    if (!bounded) {
      keep(now);
    }
    return CollectionConverters.asScala(out.iterator());
  }

  private void take(Row row, List<Row> out) {
    boolean fromLeft = Change.fromLeft(row);
    long time = row.getLong(Change.TIME);
    long now = row.getLong(Change.STREAM_TIME);
    if (closes(fromLeft, time) < now) {
      // On a side that is kept it is in the result all the same; only matches it can have none.
      boolean lost = !(fromLeft ? keepLeft : keepRight);
      out.add(Change.with(row, time, lost, row.getStruct(Change.LEFT), row.getStruct(Change.RIGHT)));
      return;
    }
    padClosed(row, Math.max(now, time), out);
    TimedRows others = fromLeft ? right : left;
    Row own = row.getStruct(fromLeft ? Change.LEFT : Change.RIGHT);
    List<TimedRow> matches = others.between(time - (fromLeft ? before : after), time + (fromLeft ? after : before));
    for (TimedRow other : matches) {
      if (other.waits()) {
        others.settle(other);
      }
      out.add(pair(row, Math.max(time, other.time()), fromLeft ? own : other.row(), fromLeft ? other.row() : own));
    }
    boolean alone = matches.isEmpty() && (fromLeft ? keepLeft : keepRight);
    if (alone && eager) {
      out.add(pair(row, time, fromLeft ? own : null, fromLeft ? null : own));
    }
    (fromLeft ? left : right).add(new TimedRow(time, row.get(Change.ARRIVAL), alone && !eager, own));
  }

  /** The last moment of stream time at which a row may still be matched by one that is not late. */
  private long closes(boolean fromLeft, long time) {
    return time + (fromLeft ? after : before) + grace;
  }

  /** Let out what waits and cannot be matched any more. {@code row} begins with the key. */
  private void padClosed(Row row, long now, List<Row> out) {
    if (keepLeft) {
      for (TimedRow alone : left.settleUntil(now - after - grace - 1)) {
        out.add(padded(row, true, alone));
      }
    }
    if (keepRight) {
      for (TimedRow alone : right.settleUntil(now - before - grace - 1)) {
        out.add(padded(row, false, alone));
      }
    }
  }

  /** No record has caused it, so it has no more than these columns. */
  private Row padded(Row row, boolean isLeft, TimedRow alone) {
    Object[] values = new Object[width];
    values[Change.KEY] = row.get(Change.KEY);
    values[Change.SIDE] = isLeft ? Change.FROM_LEFT : Change.FROM_RIGHT;
    values[Change.ARRIVAL] = alone.arrival();
    values[Change.STREAM_TIME] = closes(isLeft, alone.time()) + 1;
    values[Change.TIME] = alone.time();
    values[Change.TOMBSTONE] = false;
    values[isLeft ? Change.LEFT : Change.RIGHT] = alone.row();
    return RowFactory.create(values);
  }

  private static Row pair(Row row, long time, Row left, Row right) {
    return Change.with(row, time, false, left, right);
  }

  /** Write what may still be matched when stream time is {@code now}, and have a look again when it no longer may. */
  private void keep(long now) {
    Set<Long> looks = new HashSet<>();
    for (TimedRows side : List.of(left, right)) {
      side.forget(now - before - after - grace);
      side.flush().forEach(last -> looks.add(last + before + after + grace + 1));
      side.newlyWaiting().forEach(time -> looks.add(closes(side == left, time) + 1));
    }
    looks.forEach(getHandle()::registerTimer);
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    long now = timers.getCurrentWatermarkInMs();
    List<Row> out = new ArrayList<>();
    left.load();
    right.load();
    padClosed(key, now, out);
    keep(now);
    return CollectionConverters.asScala(out.iterator());
  }
}
