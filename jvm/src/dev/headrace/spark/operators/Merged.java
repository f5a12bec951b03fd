package dev.headrace.spark.operators;

import org.apache.spark.sql.Column;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import org.apache.spark.sql.expressions.Aggregator;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;

/** {@link Partials} as an aggregate of Spark's: what sessions keep, kept by groups and windows. */
public final class Merged extends Aggregator<Row, Row, Row> {
  private static final long serialVersionUID = 1L;

  private final Partials partials;
  private final StructType columns;

  private Merged(Partials partials, StructType columns) {
    this.partials = partials;
    this.columns = columns;
  }

  /** All rows' values merged, as {@code kind} says; {@code type} is their type, as JSON. */
  public static Column of(Column value, String type, String kind) {
    StructType columns = new StructType().add("value", DataType.fromJson(type), true);
    Merged aggregator = new Merged(new Partials(new String[] {kind}), columns);
    return functions.udaf(aggregator, Encoders.row(columns)).apply(value).getField("value");
  }

  @Override
  public Row zero() {
    return RowFactory.create((Object) null);
  }

  @Override
  public Row reduce(Row merged, Row value) {
    return partials.merge(merged, value);
  }

  @Override
  public Row merge(Row one, Row other) {
    return partials.merge(one, other);
  }

  @Override
  public Row finish(Row merged) {
    return merged;
  }

  @Override
  public Encoder<Row> bufferEncoder() {
    return Encoders.row(columns);
  }

  @Override
  public Encoder<Row> outputEncoder() {
    return Encoders.row(columns);
  }
}
