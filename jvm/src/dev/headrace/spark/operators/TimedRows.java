package dev.headrace.spark.operators;

import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeMap;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.StatefulProcessorHandle;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One side of a stream-stream join, for the key at hand: rows in buckets as wide as the join looks, so that a row needs
 * two or three of them, however long rows are kept. Buckets that were looked at stay in memory until {@link #flush}.
 */
final class TimedRows {
  private final MapState<Long, Row> state;
  private final long width;
  private final TreeMap<Long, List<TimedRow>> loaded = new TreeMap<>();
  private final Set<Long> changed = new HashSet<>();

  TimedRows(StatefulProcessorHandle handle, String name, StructType columns, long width) {
    StructType entry =
        new StructType()
            .add("time", DataTypes.LongType, false)
            .add("waits", DataTypes.BooleanType, false)
            .add("row", columns);
    StructType bucket = new StructType().add("rows", DataTypes.createArrayType(entry, false), false);
    this.state = handle.getMapState(name, Encoders.LONG(), Encoders.row(Change.stored(bucket)), TTLConfig.NONE());
    this.width = width;
  }

  void add(TimedRow row) {
    long number = Math.floorDiv(row.time(), width);
    bucket(number).add(row);
    changed.add(number);
  }

  List<TimedRow> between(long from, long to) {
    List<TimedRow> found = new ArrayList<>();
    for (long number = Math.floorDiv(from, width); number <= Math.floorDiv(to, width); number++) {
      for (TimedRow row : bucket(number)) {
        if (row.time() >= from && row.time() <= to) {
          found.add(row);
        }
      }
    }
    return found;
  }

  /** Those that wait and are not younger than {@code to}. */
  List<TimedRow> waitingUntil(long to) {
    List<TimedRow> found = new ArrayList<>();
    for (long number : numbers()) {
      if (number * width <= to) {
        bucket(number).stream().filter(row -> row.waits() && row.time() <= to).forEach(found::add);
      }
    }
    return found;
  }

  /** It waits no longer. */
  void settle(TimedRow row) {
    long number = Math.floorDiv(row.time(), width);
    List<TimedRow> rows = bucket(number);
    rows.set(rows.indexOf(row), new TimedRow(row.time(), false, row.row()));
    changed.add(number);
  }

  long lastOfBucket(long time) {
    return Math.floorDiv(time, width) * width + width - 1;
  }

  /** Drop the buckets all of whose rows are older than {@code time}. */
  void forget(long time) {
    for (long number : numbers()) {
      if (number * width + width - 1 < time) {
        loaded.remove(number);
        changed.remove(number);
        state.removeKey(number);
      }
    }
  }

  void flush() {
    for (long number : changed) {
      List<Row> rows = new ArrayList<>();
      for (TimedRow row : loaded.get(number)) {
        rows.add(RowFactory.create(row.time(), row.waits(), row.row()));
      }
      state.updateValue(number, RowFactory.create(CollectionConverters.asScala(rows).toSeq()));
    }
    loaded.clear();
    changed.clear();
  }

  private Set<Long> numbers() {
    Set<Long> numbers = new HashSet<>(loaded.keySet());
    Iterator<Long> kept = state.keys();
    while (kept.hasNext()) {
      numbers.add(kept.next());
    }
    return numbers;
  }

  private List<TimedRow> bucket(long number) {
    return loaded.computeIfAbsent(number, this::load);
  }

  private List<TimedRow> load(long number) {
    List<TimedRow> rows = new ArrayList<>();
    Row bucket = state.getValue(number);
    if (bucket != null) {
      for (Row row : bucket.<Row>getList(0)) {
        rows.add(new TimedRow(row.getLong(0), row.getBoolean(1), row.getStruct(2)));
      }
    }
    return rows;
  }
}
