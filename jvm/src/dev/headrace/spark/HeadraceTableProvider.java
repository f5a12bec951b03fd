package dev.headrace.spark;

import java.util.Map;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** `format("headrace")`: topics of the local log as sources and sinks. */
public final class HeadraceTableProvider implements TableProvider, DataSourceRegister {
  @Override
  public String shortName() {
    return "headrace";
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    ReadOptions asked = ReadOptions.parse(options.asCaseSensitiveMap());
    return Projection.of(TopicDefinition.load(asked.path(), asked.topic()).sparkSchema(), asked.columns());
  }

  /** A reader may name columns the topic does not have; they are null. */
  @Override
  public boolean supportsExternalMetadata() {
    return true;
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    return new TopicTable(schema);
  }
}
