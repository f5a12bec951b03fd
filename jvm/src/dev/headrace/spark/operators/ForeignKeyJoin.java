package dev.headrace.spark.operators;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.StructType;
import scala.Tuple2;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The rows of a left table that refer to one key of the right table, and that row.
 *
 * <p>Left rows come with the first column of their left part saying what to do: {@code put} (the row refers to this key
 * now), {@code move} (it refers to another key from now on, where it is put) or {@code drop} (it is deleted). The second
 * is its own primary key. Results are by that key; whoever follows sorts them by arrival, since the results of one left
 * row may come out of several keys.
 */
public final class ForeignKeyJoin extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;
  private static final String PUT = "put";
  private static final String DROP = "drop";

  private final boolean keepLeft;
  private final StructType leftColumns;
  private final StructType rightColumns;
  private transient MapState<Row, Row> leftState;
  private transient ValueState<Row> rightState;

  private ForeignKeyJoin(boolean keepLeft, StructType leftColumns, StructType rightColumns) {
    this.keepLeft = keepLeft;
    this.leftColumns = leftColumns;
    this.rightColumns = rightColumns;
  }

  public static Dataset<Row> join(Dataset<Row> rows, boolean keepLeft) {
    StructType left = Change.part(rows, Change.LEFT);
    StructType right = Change.held(Change.part(rows, Change.RIGHT));
    return Change.run(rows, new ForeignKeyJoin(keepLeft, left, right), TimeMode.None(), rows.schema());
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    StructType primary = new StructType().add(leftColumns.fields()[1]);
    Encoder<Row> keys = Encoders.row(Change.stored(primary));
    Encoder<Row> rows = Encoders.row(Change.stored(Change.held(leftColumns)));
    leftState = getHandle().getMapState("left", keys, rows, TTLConfig.NONE());
    rightState = getHandle().getValueState("right", Encoders.row(Change.stored(rightColumns)), TTLConfig.NONE());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    Row rightBefore = rightState.get();
    Row right = rightBefore;
    Map<Row, Row> touched = new HashMap<>();
    List<Row> results = new ArrayList<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      if (!Change.fromLeft(row)) {
        Row before = right;
        right =
            row.getBoolean(Change.TOMBSTONE)
                ? null
                : RowFactory.create(row.getLong(Change.TIME), row.getStruct(Change.RIGHT));
        if (before != null || right != null) {
          for (Row left : referring(touched)) {
            results.add(result(row, left, right));
          }
        }
        continue;
      }
      Row left = row.getStruct(Change.LEFT);
      Row primary = RowFactory.create(left.get(1));
      if (PUT.equals(left.getString(0))) {
        Row kept = RowFactory.create(row.getLong(Change.TIME), left);
        touched.put(primary, kept);
        results.add(result(row, kept, right));
      } else {
        touched.put(primary, null);
        if (DROP.equals(left.getString(0))) {
          results.add(result(row, RowFactory.create(row.getLong(Change.TIME), left), null, true));
        }
      }
    }
    touched.forEach(this::store);
    Change.store(rightState, rightBefore, right);
    return CollectionConverters.asScala(results.iterator());
  }

  /** The left rows now: those kept, with what this batch has done to them so far. */
  private List<Row> referring(Map<Row, Row> touched) {
    List<Row> found = new ArrayList<>();
    Iterator<Tuple2<Row, Row>> kept = leftState.iterator();
    while (kept.hasNext()) {
      Tuple2<Row, Row> entry = kept.next();
      if (!touched.containsKey(RowFactory.create(entry._1().get(0)))) {
        found.add(entry._2());
      }
    }
    touched.values().stream().filter(row -> row != null).forEach(found::add);
    return found;
  }

  private void store(Row primary, Row left) {
    if (left == null) {
      leftState.removeKey(primary);
    } else {
      leftState.updateValue(primary, left);
    }
  }

  private Row result(Row row, Row left, Row right) {
    return result(row, left, right, right == null && !keepLeft);
  }

  private static Row result(Row row, Row left, Row right, boolean gone) {
    long time = Math.max(row.getLong(Change.TIME), left.getLong(0));
    time = Math.max(time, right == null ? 0 : right.getLong(0));
    return Change.with(row, time, gone, left.getStruct(1), right == null ? null : right.getStruct(1));
  }
}
