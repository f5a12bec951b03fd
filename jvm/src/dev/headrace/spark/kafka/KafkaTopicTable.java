package dev.headrace.spark.kafka;

import java.util.EnumSet;
import java.util.Set;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A topic on Kafka as Spark's table. */
@SuppressWarnings("deprecation") // of `schema()`, from which Spark derives what replaces it
final class KafkaTopicTable implements Table, SupportsRead {
  private final StructType schema;
  private final SupportsRead records;
  private final KafkaOptions asked;

  KafkaTopicTable(StructType schema, SupportsRead records, KafkaOptions asked) {
    this.schema = schema;
    this.records = records;
    this.asked = asked;
  }

  @Override
  public String name() {
    return "headrace-kafka";
  }

  @Override
  public StructType schema() {
    return schema;
  }

  @Override
  public Set<TableCapability> capabilities() {
    return EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ);
  }

  @Override
  public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
    ForkPoint fork = asked.fork();
    Scan scan = fork == null ? records.newScanBuilder(options).build() : new ForkedRecords(records, options, fork);
    return () -> new StampedScan(schema, scan, asked);
  }

  /** Spark's scan of the records, and the stamp. */
  private record StampedScan(StructType readSchema, Scan records, KafkaOptions asked) implements Scan {
    @Override
    public String description() {
      return "headrace " + records.description();
    }

    @Override
    public ColumnarSupportMode columnarSupportMode() {
      return ColumnarSupportMode.UNSUPPORTED;
    }

    @Override
    public Batch toBatch() {
      return new KafkaTopicBatch(records.toBatch(), asked);
    }

    @Override
    public MicroBatchStream toMicroBatchStream(String checkpointLocation) {
      return new KafkaTopicStream(records.toMicroBatchStream(checkpointLocation), asked);
    }
  }
}
