package dev.headrace.spark.operators;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Session windows: rows no further apart than the gap belong together, and a row between two sessions makes them one.
 *
 * <p>Of every session its partial results are kept ({@link Partials}); the rows' right part holds each row's own. What
 * comes out, per batch, is each session that changed, its bounds in the left part, and a deletion of each that is now
 * part of another. With {@code finals} a session comes out once, when it is closed, its stream time the first moment at
 * which it is. A row whose session is closed when it arrives is late: it comes out with side 1 and its own parts. A
 * session is closed once stream time, which never runs behind the watermark, has passed its end plus gap plus grace; it
 * takes no more rows then, and is forgotten when a row of its key sees that, or else the timer. A key that holds
 * sessions has a timer no later than when the first of them closes; it moves on when it goes off, not with every row.
 *
 * <p>{@code bounded}: there is no later batch, so every final session comes out. Who asked knows how far time has come,
 * and drops those whose stream time is beyond it.
 */
public final class Sessions extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;
  private static final int SESSION = 0;
  private static final int LATE = 1;

  private final long gap;
  private final long grace;
  private final boolean finals;
  private final boolean bounded;
  private final Partials partials;
  private final StructType columns;
  private final Object lastArrival;
  private transient ValueState<Row> state;

  private Sessions(
      long gap, long grace, boolean finals, boolean bounded, Partials partials, Dataset<Row> rows) {
    this.gap = gap;
    this.grace = grace;
    this.finals = finals;
    this.bounded = bounded;
    this.partials = partials;
    this.columns = Change.part(rows, Change.RIGHT);
    this.lastArrival = Change.lastArrival(rows);
  }

  /** {@code kinds}: how each column of the right part is merged. */
  public static Dataset<Row> of(
      Dataset<Row> rows, long gap, long grace, boolean finals, boolean bounded, List<String> kinds) {
    Partials partials = new Partials(kinds.toArray(new String[0]));
    Sessions processor = new Sessions(gap, grace, finals, bounded, partials, rows);
    TimeMode mode = bounded ? TimeMode.None() : TimeMode.EventTime();
    return Change.run(rows, processor, mode, Change.columns(rows));
  }

  private record Session(long start, long end, Row partial, boolean changed) {}

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    StructType session =
        new StructType()
            .add("start", DataTypes.LongType, false)
            .add("end", DataTypes.LongType, false)
            .add("partial", columns);
    StructType sessions = new StructType().add("sessions", DataTypes.createArrayType(session, false), false);
    state = getHandle().getValueState("sessions", Encoders.row(Change.stored(sessions)), TTLConfig.NONE());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    List<Session> before = load();
    List<Session> sessions = new ArrayList<>(before);
    List<Row> out = new ArrayList<>();
    Row last = null;
    long now = Long.MIN_VALUE;
    while (rows.hasNext()) {
      last = rows.next();
      now = Math.max(now, Math.max(last.getLong(Change.TIME), last.getLong(Change.STREAM_TIME)));
      if (!take(last, sessions)) {
        out.add(late(last));
      }
    }
    for (Session session : before) {
      if (!finals && sessions.stream().noneMatch(one -> sameBounds(one, session))) {
        out.add(change(last, session, true));
      }
    }
    for (Session session : sessions) {
      if (session.changed() && !finals) {
        out.add(change(last, session, false));
      }
    }
    List<Session> open = closeUntil(bounded ? Long.MAX_VALUE : now, last, sessions, out);
    if (firstToClose(open) < firstToClose(before)) {
      getHandle().registerTimer(firstToClose(open));
    }
    store(open);
    return CollectionConverters.asScala(out.iterator());
  }

  private long firstToClose(List<Session> sessions) {
    long first = Long.MAX_VALUE;
    for (Session session : sessions) {
      first = Math.min(first, closes(session));
    }
    return first;
  }

  /** The first moment of stream time at which it takes no more rows. */
  private long closes(Session session) {
    return session.end() + gap + grace + 1;
  }

  /** Those that are open when stream time is {@code now}; the others, if they are wanted, come out. */
  private List<Session> closeUntil(long now, Row row, List<Session> sessions, List<Row> out) {
    List<Session> open = new ArrayList<>();
    for (Session session : sessions) {
      if (closes(session) > now) {
        open.add(session);
      } else if (finals) {
        out.add(result(row.get(Change.KEY), lastArrival, closes(session), session, false));
      }
    }
    return open;
  }

  /** Put a row into its session; false if it is late. */
  private boolean take(Row row, List<Session> sessions) {
    long time = row.getLong(Change.TIME);
    long closed = Math.max(time, row.getLong(Change.STREAM_TIME)) - gap - grace;
    Session merged = new Session(time, time, row.getStruct(Change.RIGHT), true);
    List<Session> joined = new ArrayList<>();
    for (Session session : sessions) {
      if (session.end() >= Math.max(time - gap, closed) && session.start() <= time + gap) {
        long start = Math.min(merged.start(), session.start());
        long end = Math.max(merged.end(), session.end());
        merged = new Session(start, end, partials.merge(session.partial(), merged.partial()), true);
        joined.add(session);
      }
    }
    if (merged.end() < closed) {
      return false;
    }
    sessions.removeAll(joined);
    sessions.add(merged);
    return true;
  }

  private static boolean sameBounds(Session one, Session other) {
    return one.start() == other.start() && one.end() == other.end();
  }

  @Override
  public Iterator<Row> handleExpiredTimer(Row key, TimerValues timers, ExpiredTimerInfo expired) {
    List<Row> out = new ArrayList<>();
    List<Session> sessions = load();
    List<Session> open = closeUntil(timers.getCurrentWatermarkInMs(), key, sessions, out);
    if (open.size() < sessions.size()) {
      store(open);
    }
    if (!open.isEmpty()) {
      getHandle().registerTimer(firstToClose(open));
    }
    return CollectionConverters.asScala(out.iterator());
  }

  private static Row change(Row row, Session session, boolean gone) {
    return result(row.get(Change.KEY), row.get(Change.ARRIVAL), row.getLong(Change.STREAM_TIME), session, gone);
  }

  private static Row result(Object key, Object arrival, long streamTime, Session session, boolean gone) {
    Row bounds = RowFactory.create(session.start(), session.end(), null);
    return RowFactory.create(key, SESSION, arrival, streamTime, session.end(), gone, bounds, session.partial());
  }

  private static Row late(Row row) {
    return RowFactory.create(
        row.get(Change.KEY),
        LATE,
        row.get(Change.ARRIVAL),
        row.get(Change.STREAM_TIME),
        row.get(Change.TIME),
        false,
        row.get(Change.LEFT),
        null);
  }

  private List<Session> load() {
    List<Session> sessions = new ArrayList<>();
    Row kept = state.get();
    if (kept != null) {
      for (Row row : kept.<Row>getList(0)) {
        sessions.add(new Session(row.getLong(0), row.getLong(1), row.getStruct(2), false));
      }
    }
    return sessions;
  }

  private void store(List<Session> sessions) {
    if (sessions.isEmpty()) {
      state.clear();
      return;
    }
    List<Row> rows = new ArrayList<>();
    for (Session session : sessions) {
      rows.add(RowFactory.create(session.start(), session.end(), session.partial()));
    }
    state.update(RowFactory.create(CollectionConverters.asScala(rows).toSeq()));
  }
}
