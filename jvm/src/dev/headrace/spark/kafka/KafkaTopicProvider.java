package dev.headrace.spark.kafka;

import java.lang.reflect.InvocationTargetException;
import java.util.Map;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableProvider;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * `format("headrace-kafka")`: Spark's own Kafka source, and with every record the stream time of its partition, which
 * the local log's owner would have stamped, and how far it is with the record itself. Takes all options of Spark's source besides those of {@link KafkaOptions}.
 *
 * <p>Spark's source is not compiled against: it is a jar that only those have who use Kafka.
 */
public final class KafkaTopicProvider implements TableProvider, DataSourceRegister {
  private static final String SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceProvider";

  static final String STREAM_TIME = "$stream_time";
  static final String REACHED = "$reached";
  static final String FLOOR = "$floor";
  /** Nullable, though it never is null: what filters on it is then not decided, and dropped, at planning. */
  private static final StructType FLOORS = new StructType().add(FLOOR, DataTypes.LongType, true);

  @Override
  public String shortName() {
    return "headrace-kafka";
  }

  @Override
  public StructType inferSchema(CaseInsensitiveStringMap options) {
    if (KafkaOptions.parse(options.asCaseSensitiveMap()).role() == KafkaOptions.Role.FLOOR) {
      return FLOORS;
    }
    return sparkSource()
        .inferSchema(options)
        .add(STREAM_TIME, DataTypes.LongType, false)
        .add(REACHED, DataTypes.LongType, false);
  }

  @Override
  public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(properties);
    TableProvider kafka = sparkSource();
    Table records = kafka.getTable(kafka.inferSchema(options), partitioning, properties);
    return new KafkaTopicTable(schema, (SupportsRead) records, KafkaOptions.parse(properties));
  }

  private static TableProvider sparkSource() {
    try {
      ClassLoader loader = Thread.currentThread().getContextClassLoader();
      return (TableProvider) Class.forName(SOURCE, true, loader).getDeclaredConstructor().newInstance();
    } catch (ClassNotFoundException error) {
      throw new IllegalStateException("Spark's Kafka source is missing: its jars were not found", error);
    } catch (InstantiationException | IllegalAccessException | InvocationTargetException
        | NoSuchMethodException error) {
      throw new IllegalStateException(error);
    }
  }
}
