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

/** Each row of the left stream with what the right table holds for its key when it arrives. */
public final class StreamTableJoin extends StatefulProcessor<Row, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final boolean outer;
  private final StructType table;
  private transient ValueState<Row> held;

  private StreamTableJoin(boolean outer, StructType table) {
    this.outer = outer;
    this.table = table;
  }

  public static Dataset<Row> join(Dataset<Row> rows, boolean outer) {
    StreamTableJoin processor = new StreamTableJoin(outer, Change.part(rows, Change.RIGHT));
    return Change.run(rows, processor, TimeMode.None(), rows.schema());
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    held = getHandle().getValueState("table", Encoders.row(Change.stored(table)), TTLConfig.NONE());
  }

  @Override
  public Iterator<Row> handleInputRows(Row key, Iterator<Row> rows, TimerValues timers) {
    Row before = held.get();
    Row current = before;
    List<Row> joined = new ArrayList<>();
    while (rows.hasNext()) {
      Row row = rows.next();
      if (!Change.fromLeft(row)) {
        current = row.getBoolean(Change.TOMBSTONE) ? null : row.getStruct(Change.RIGHT);
      } else if (!row.getBoolean(Change.TOMBSTONE) && (current != null || outer)) {
        joined.add(Change.with(row, row.getLong(Change.TIME), false, row.getStruct(Change.LEFT), current));
      }
    }
    Change.store(held, before, current);
    return CollectionConverters.asScala(joined.iterator());
  }
}
