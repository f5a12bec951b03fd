package dev.headrace.spark.operators;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** Two tables with the same key: a change of either is a change of the result, or a tombstone once it has no row. */
public final class TableTableJoin extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final boolean keepLeft;
  private final boolean keepRight;
  private final StructType leftColumns;
  private final StructType rightColumns;
  private transient ValueState<Row> leftState;
  private transient ValueState<Row> rightState;

  private TableTableJoin(boolean keepLeft, boolean keepRight, StructType leftColumns, StructType rightColumns) {
    this.keepLeft = keepLeft;
    this.keepRight = keepRight;
    this.leftColumns = leftColumns;
    this.rightColumns = rightColumns;
  }

  /** {@code keepLeft}: a left row without a right one is in the result; {@code keepRight} the other way round. */
  public static Dataset<Row> join(Dataset<Row> rows, boolean keepLeft, boolean keepRight) {
    StructType left = Change.held(Change.part(rows, Change.LEFT));
    StructType right = Change.held(Change.part(rows, Change.RIGHT));
    TableTableJoin processor = new TableTableJoin(keepLeft, keepRight, left, right);
    return Change.run(rows, processor, TimeMode.None(), rows.schema());
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    leftState = getHandle().getValueState("left", Encoders.row(Change.stored(leftColumns)), TTLConfig.NONE());
    rightState = getHandle().getValueState("right", Encoders.row(Change.stored(rightColumns)), TTLConfig.NONE());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    Row leftBefore = leftState.get();
    Row rightBefore = rightState.get();
    Row left = leftBefore;
    Row right = rightBefore;
    List<Row> changes = new ArrayList<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      boolean existed = isResult(left, right);
      if (Change.fromLeft(row)) {
        left = held(row, Change.LEFT);
      } else {
        right = held(row, Change.RIGHT);
      }
      boolean exists = isResult(left, right);
      if (exists || existed) {
        changes.add(result(row, left, right, exists));
      }
    }
    Change.store(leftState, leftBefore, left);
    Change.store(rightState, rightBefore, right);
    return CollectionConverters.asScala(changes.iterator());
  }

  private boolean isResult(Row left, Row right) {
    return (left != null && right != null) || (left != null && keepLeft) || (right != null && keepRight);
  }

  private static Row held(Row row, int side) {
    return row.getBoolean(Change.TOMBSTONE) ? null : RowFactory.create(row.getLong(Change.TIME), row.getStruct(side));
  }

  private static Row result(Row row, Row left, Row right, boolean exists) {
    long time = row.getLong(Change.TIME);
    time = Math.max(time, left == null ? 0 : left.getLong(0));
    time = Math.max(time, right == null ? 0 : right.getLong(0));
    return Change.with(
        row,
        time,
        !exists,
        left == null || !exists ? null : left.getStruct(1),
        right == null || !exists ? null : right.getStruct(1));
  }
}
