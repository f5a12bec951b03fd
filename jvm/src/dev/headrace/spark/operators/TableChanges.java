package dev.headrace.spark.operators;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** A table's changelog as changes: the left part is the row before (null if there was none), the right one the row
 * after (null if it is deleted). Deleting what is not there is no change. */
public final class TableChanges extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final StructType columns;
  private transient ValueState<Row> held;

  private TableChanges(StructType columns) {
    this.columns = columns;
  }

  /** The rows' own columns are in their right part. */
  public static Dataset<Row> of(Dataset<Row> rows) {
    return Change.run(rows, new TableChanges(Change.part(rows, Change.RIGHT)), TimeMode.None(), rows.schema());
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    held = getHandle().getValueState("row", Encoders.row(Change.stored(columns)), TTLConfig.NONE());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    Row first = held.get();
    Row before = first;
    List<Row> changes = new ArrayList<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      Row after = row.getBoolean(Change.TOMBSTONE) ? null : row.getStruct(Change.RIGHT);
      if (before != null || after != null) {
        changes.add(Change.with(row, row.getLong(Change.TIME), after == null, before, after));
      }
      before = after;
    }
    Change.store(held, first, before);
    return CollectionConverters.asScala(changes.iterator());
  }
}
