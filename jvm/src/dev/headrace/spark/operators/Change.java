package dev.headrace.spark.operators;

import java.util.Arrays;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.ValueState;
import org.apache.spark.sql.types.ArrayType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.MapType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/**
 * The rows that operators take and give: a record of the left or of the right input, or both joined. Python makes them
 * in this order of columns ({@code process/operators.py}) and takes them apart again.
 *
 * <p>Further columns behind these (headers) belong to a row and to those that it causes.
 *
 * <p>An operator gets the rows of one key in the order they arrived: Python sorts each partition by key and arrival,
 * which is more than the order by key that Spark wants.
 */
final class Change {
  static final int KEY = 0;
  static final int SIDE = 1;
  static final int ARRIVAL = 2;
  static final int STREAM_TIME = 3;
  static final int TIME = 4;
  static final int TOMBSTONE = 5;
  static final int LEFT = 6;
  static final int RIGHT = 7;

  static final int FROM_LEFT = 0;
  static final int FROM_RIGHT = 1;

  private Change() {}

  static boolean fromLeft(Row row) {
    return row.getInt(SIDE) == FROM_LEFT;
  }

  /** These columns alone. */
  static StructType columns(Dataset<Row> rows) {
    return new StructType(Arrays.copyOf(rows.schema().fields(), RIGHT + 1));
  }

  static StructType part(Dataset<Row> rows, int place) {
    return (StructType) rows.schema().fields()[place].dataType();
  }

  /**
   * The same types under names that Avro allows, in which Spark describes state. Rows go by place, so nobody else sees
   * them.
   */
  static StructType stored(StructType columns) {
    return (StructType) stored((DataType) columns);
  }

  private static DataType stored(DataType type) {
    if (type instanceof StructType struct) {
      StructType renamed = new StructType();
      int place = 0;
      for (StructField field : struct.fields()) {
        renamed = renamed.add("f" + place++, stored(field.dataType()), field.nullable());
      }
      return renamed;
    }
    if (type instanceof ArrayType array) {
      return DataTypes.createArrayType(stored(array.elementType()), array.containsNull());
    }
    if (type instanceof MapType map) {
      return DataTypes.createMapType(stored(map.keyType()), stored(map.valueType()), map.valueContainsNull());
    }
    return type;
  }

  /** An arrival after all others, for rows that come with time alone. On Kafka an arrival is several numbers. */
  static Object lastArrival(Dataset<Row> rows) {
    return largest(rows.schema().fields()[ARRIVAL].dataType());
  }

  private static Object largest(DataType type) {
    if (type instanceof StructType struct) {
      return RowFactory.create(Arrays.stream(struct.fields()).map(field -> largest(field.dataType())).toArray());
    }
    return type.equals(DataTypes.IntegerType) ? (Object) Integer.MAX_VALUE : (Object) Long.MAX_VALUE;
  }

  /** What is kept of one input's row: its time and its columns. */
  static StructType held(StructType columns) {
    return new StructType().add("time", DataTypes.LongType, false).add("row", columns);
  }

  /** The row with another time, deletion and parts. What it has beyond them it keeps. */
  static Row with(Row row, long time, boolean tombstone, Row left, Row right) {
    Object[] values = values(row);
    values[TIME] = time;
    values[TOMBSTONE] = tombstone;
    values[LEFT] = left;
    values[RIGHT] = right;
    return RowFactory.create(values);
  }

  /** The row with another stream time. */
  static Row at(Row row, long streamTime) {
    Object[] values = values(row);
    values[STREAM_TIME] = streamTime;
    return RowFactory.create(values);
  }

  private static Object[] values(Row row) {
    Object[] values = new Object[row.size()];
    for (int place = 0; place < values.length; place++) {
      values[place] = row.get(place);
    }
    return values;
  }

  /** Keep what a key holds now, if that is not what it held before. */
  static void store(ValueState<Row> state, Row before, Row now) {
    if (now == before) {
      return;
    }
    if (now == null) {
      state.clear();
    } else {
      state.update(now);
    }
  }

  /** Run a processor over the rows of each key; they keep their columns, or get those of {@code out}. */
  static Dataset<Row> run(
      Dataset<Row> rows, StatefulProcessor<Row, Row, Row> processor, TimeMode mode, StructType out) {
    StructType key = new StructType().add(rows.schema().fields()[KEY]);
    return rows.groupBy(functions.col("`" + rows.columns()[KEY] + "`"))
        .as(Encoders.row(key), Encoders.row(rows.schema()))
        .transformWithState(processor, mode, OutputMode.Update(), Encoders.row(optional(out)));
  }

  /** Any part may be missing from what comes out, also where Spark could see that nothing missing goes in. */
  private static StructType optional(StructType columns) {
    StructType found = new StructType();
    for (StructField field : columns.fields()) {
      found = found.add(field.name(), field.dataType(), true);
    }
    return found;
  }
}
