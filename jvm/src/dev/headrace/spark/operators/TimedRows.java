package dev.headrace.spark.operators;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One side of a stream-stream join, for the key at hand: rows in buckets as wide as the join looks, so that a row needs
 * two or three of them, however long rows are kept. {@link #load} reads them all, at once; {@link #flush} writes those
 * that changed. What comes and goes within a batch is never written.
 */
final class TimedRows {
  private final MapState<Long, Row> state;
  private final long width;
  private final TreeMap<Long, List<TimedRow>> buckets = new TreeMap<>();
  private final Set<Long> stored = new HashSet<>();
  private final Set<Long> changed = new HashSet<>();
  private final Set<Long> newlyWaiting = new HashSet<>();
  private int waiting;

  TimedRows(StatefulProcessorHandle handle, String name, DataType arrival, StructType columns, long width) {
    StructType entry =
        new StructType()
            .add("time", DataTypes.LongType, false)
            .add("arrival", arrival, false)
            .add("waits", DataTypes.BooleanType, false)
            .add("row", columns);
    StructType bucket = new StructType().add("rows", DataTypes.createArrayType(entry, false), false);
    this.state = handle.getMapState(name, Encoders.LONG(), Encoders.row(Change.stored(bucket)), TTLConfig.NONE());
    this.width = width;
  }

  /** Begin with what is kept for the key. */
  void load() {
    buckets.clear();
    stored.clear();
    changed.clear();
    newlyWaiting.clear();
    waiting = 0;
    Iterator<Tuple2<Long, Row>> kept = state.iterator();
    while (kept.hasNext()) {
      Tuple2<Long, Row> bucket = kept.next();
      List<TimedRow> rows = new ArrayList<>();
      for (Row row : bucket._2().<Row>getList(0)) {
        rows.add(new TimedRow(row.getLong(0), row.get(1), row.getBoolean(2), row.getStruct(3)));
        waiting += row.getBoolean(2) ? 1 : 0;
      }
      buckets.put(bucket._1(), rows);
      stored.add(bucket._1());
    }
  }

  void add(TimedRow row) {
    long number = Math.floorDiv(row.time(), width);
    buckets.computeIfAbsent(number, unknown -> new ArrayList<>()).add(row);
    changed.add(number);
    if (row.waits()) {
      newlyWaiting.add(row.time());
      waiting++;
    }
  }

  List<TimedRow> between(long from, long to) {
    List<TimedRow> found = new ArrayList<>();
    Map<Long, List<TimedRow>> near =
        buckets.subMap(Math.floorDiv(from, width), true, Math.floorDiv(to, width), true);
    for (List<TimedRow> rows : near.values()) {
      for (TimedRow row : rows) {
        if (row.time() >= from && row.time() <= to) {
          found.add(row);
        }
      }
    }
    return found;
  }

  /** Those that wait and are not younger than {@code to}; they wait no longer. */
  List<TimedRow> settleUntil(long to) {
    if (waiting == 0) {
      return List.of();
    }
    List<TimedRow> found = new ArrayList<>();
    for (List<TimedRow> rows : buckets.headMap(Math.floorDiv(to, width), true).values()) {
      rows.stream().filter(row -> row.waits() && row.time() <= to).forEach(found::add);
    }
    found.forEach(this::settle);
    return found;
  }

  /** It waits no longer. */
  void settle(TimedRow row) {
    long number = Math.floorDiv(row.time(), width);
    List<TimedRow> rows = buckets.get(number);
    rows.set(rows.indexOf(row), row.settled());
    changed.add(number);
    waiting--;
  }

  /** Drop the buckets all of whose rows are older than {@code time}. */
  void forget(long time) {
    Map<Long, List<TimedRow>> old = buckets.headMap(Math.floorDiv(time, width), false);
    for (long number : old.keySet()) {
      changed.remove(number);
      if (stored.remove(number)) {
        state.removeKey(number);
      }
    }
    old.clear();
  }

  /** Write what changed. Returns the last moment of each bucket that was not there before. */
  List<Long> flush() {
    List<Long> added = new ArrayList<>();
    for (long number : changed) {
      List<Row> rows = new ArrayList<>();
      for (TimedRow row : buckets.get(number)) {
        rows.add(RowFactory.create(row.time(), row.arrival(), row.waits(), row.row()));
      }
      state.updateValue(number, RowFactory.create(CollectionConverters.asScala(rows).toSeq()));
      if (!stored.contains(number)) {
        added.add(number * width + width - 1);
      }
    }
    return added;
  }

  /** The times of those that were added since {@link #load} and wait. */
  Collection<Long> newlyWaiting() {
    return waiting == 0 ? List.of() : newlyWaiting;
  }
}
