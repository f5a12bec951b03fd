package dev.headrace.spark;

import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.connector.write.WriterCommitMessage;

/**
 * How many rows a query's batches have while there are more to read.
 *
 * <p>What other queries wait for is a free core, so for the longest task. Those that read have few rows each. Those that
 * keep state and write have as many keys as their share of the batch, and nobody knows how many that is before: a
 * million rows may be ten keys or a million. So a batch is followed by one whose longest task should take about a
 * second. Few keys make large batches, which cost the least; many make small ones.
 */
final class BatchSize {
  private static final double TASK_NANOS = 1e9;
  private static final long LEAST_ROWS = 100_000;

  /** Of each query's last batch, by name; told by whoever commits it, and taken by whoever plans the next. */
  private static final Map<String, Long> LONGEST = new ConcurrentHashMap<>();

  private final String name;
  private double rows;
  private boolean full;

  BatchSize(ReadOptions options) {
    name = options.cut() == null ? null : name(options.path(), options.cut());
    rows = options.firstRows();
  }

  static void took(WriteOptions options, WriterCommitMessage[] messages) {
    long longest = 0;
    for (WriterCommitMessage message : messages) {
      longest = Math.max(longest, message instanceof StagedTask task ? task.nanos() : 0);
    }
    LONGEST.put(name(options.path(), options.query()), longest);
  }

  /** After a batch that had as many rows as it might: another has nothing to say. */
  void adjust() {
    Long took = name == null ? null : LONGEST.remove(name);
    if (full && rows > 0 && took != null) {
      rows = Math.max(LEAST_ROWS, rows * TASK_NANOS / Math.max(1, took));
    }
    full = false;
  }

  /** Whether the batch that comes has as many rows as it may. */
  void chosen(boolean full) {
    this.full = full;
  }

  /** 0 is without end. */
  long atMost(long most) {
    rows = rows > 0 && most > 0 ? Math.min(most, rows) : rows;
    return rows > 0 ? (long) rows : most;
  }

  private static String name(Path path, String query) {
    return path + "\n" + query;
  }
}
