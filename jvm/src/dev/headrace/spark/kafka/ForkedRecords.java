package dev.headrace.spark.kafka;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.function.UnaryOperator;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.streaming.MicroBatchStream;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** A topic that was forked: Spark's scan of the original up to there, and Spark's scan of the fork, as one. */
record ForkedRecords(SupportsRead table, CaseInsensitiveStringMap options, ForkPoint point) implements Scan {
  private static final String STARTS = "startingOffsets";
  private static final String ENDS = "endingOffsets";

  @Override
  public StructType readSchema() {
    return scan(options).readSchema();
  }

  @Override
  public String description() {
    return scan(options).description() + ", a fork of " + point.original();
  }

  @Override
  public Batch toBatch() {
    Map<String, String> original = original();
    original.putIfAbsent(ENDS.toLowerCase(Locale.ROOT), point.all().json());
    return new ForkedBatch(scan(change(original, ENDS, point::endInOriginal)).toBatch(), scan(fork()).toBatch(), point);
  }

  /** Spark's source notes where it began, in the place it is given. That of the original may be there already. */
  @Override
  public MicroBatchStream toMicroBatchStream(String location) {
    return new ForkedStream(
        scan(original()).toMicroBatchStream(location), scan(fork()).toMicroBatchStream(location + "/fork"), point);
  }

  private Map<String, String> original() {
    Map<String, String> found = new HashMap<>(options);
    found.put("subscribe", point.original());
    return change(found, STARTS, point::inOriginal);
  }

  private Map<String, String> fork() {
    return change(change(new HashMap<>(options), STARTS, point::inFork), ENDS, point::inFork);
  }

  /** Offsets of an option, if it has any, and not only a word. The names of options are in lower case here. */
  private static Map<String, String> change(
      Map<String, String> options, String name, UnaryOperator<KafkaOffsets> places) {
    options.computeIfPresent(
        name.toLowerCase(Locale.ROOT),
        (option, text) -> text.startsWith("{") ? places.apply(KafkaOffsets.parse(text)).json() : text);
    return options;
  }

  private Scan scan(Map<String, String> options) {
    return table.newScanBuilder(new CaseInsensitiveStringMap(options)).build();
  }

  private record ForkedBatch(Batch original, Batch fork, ForkPoint point) implements Batch {
    @Override
    public InputPartition[] planInputPartitions() {
      return ForkedRange.pair(original.planInputPartitions(), fork.planInputPartitions(), point);
    }

    @Override
    public PartitionReaderFactory createReaderFactory() {
      return new ForkedRange.Readers(original.createReaderFactory(), fork.createReaderFactory());
    }
  }
}
