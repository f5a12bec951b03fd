package dev.headrace.spark;

import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What a reader was asked for.
 *
 * @param columns the only columns to read, as `a,b` or a JSON array; empty means all
 * @param startingOffsets `earliest`, `latest`, or JSON; streams only look at it when they have no checkpoint
 * @param endingOffsets of a batch: `latest` or JSON
 * @param maxRowsPerTrigger most rows of a micro-batch; 0 means no limit
 * @param firstRows rows of the first micro-batch, and then as many as fit (`BatchSize`); 0 means always the most
 * @param cut sources of a query that name the same group read up to the same arrival number; null means alone
 * @param stopAt an arrival number that no batch passes over: one ends there
 * @param closes each place is followed by a batch without records, for what waits until those before it are over
 * @param clock other topics: `$stream_time` is then that of all of them together; as `columns`, empty means none
 * @param minLag read only frames that may hold records more than this many milliseconds late; null means all
 */
record ReadOptions(
    Path path,
    String topic,
    List<String> columns,
    String startingOffsets,
    String endingOffsets,
    long maxRowsPerTrigger,
    long firstRows,
    String cut,
    long stopAt,
    boolean closes,
    List<String> clock,
    Long minLag) {
  private static final Set<String> KNOWN =
      Set.of(
          "path",
          "topic",
          "columns",
          "startingOffsets",
          "endingOffsets",
          "maxRowsPerTrigger",
          "firstRows",
          "cut",
          "stopAt",
          "closes",
          "clock",
          "minLag");

  static ReadOptions parse(Map<String, String> given) {
    CaseInsensitiveStringMap options = new CaseInsensitiveStringMap(given);
    refuseUnknown(options);
    Long minLag = options.containsKey("minLag") ? number(options, "minLag", Long.MIN_VALUE) : null;
    return new ReadOptions(
        Path.of(required(options, "path")),
        required(options, "topic"),
        list(options.getOrDefault("columns", "")),
        options.getOrDefault("startingOffsets", "earliest"),
        options.getOrDefault("endingOffsets", "latest"),
        options.containsKey("maxRowsPerTrigger") ? number(options, "maxRowsPerTrigger", 1) : 0,
        options.containsKey("firstRows") ? number(options, "firstRows", 1) : 0,
        options.get("cut"),
        options.containsKey("stopAt") ? number(options, "stopAt", 0) : 0,
        options.getBoolean("closes", false),
        list(options.getOrDefault("clock", "")),
        minLag);
  }

  /** A misspelt option would silently mean the default. */
  private static void refuseUnknown(CaseInsensitiveStringMap options) {
    Set<String> known = KNOWN.stream().map(String::toLowerCase).collect(Collectors.toSet());
    for (String name : options.keySet()) {
      if (!known.contains(name)) {
        throw LogException.usage("no option `%s`; there are %s".formatted(name, new TreeSet<>(KNOWN)));
      }
    }
  }

  private static String required(CaseInsensitiveStringMap options, String name) {
    String value = options.get(name);
    if (value == null || value.isEmpty()) {
      throw LogException.usage("option `%s` is missing".formatted(name));
    }
    return value;
  }

  private static long number(CaseInsensitiveStringMap options, String name, long least) {
    try {
      long value = Long.parseLong(options.get(name));
      if (value >= least) {
        return value;
      }
    } catch (NumberFormatException error) {
      // said below
    }
    throw LogException.usage("option `%s` cannot be `%s`".formatted(name, options.get(name)));
  }

  /** Names with commas, which SQL allows if quoted, need the JSON form. */
  private static List<String> list(String text) {
    if (text.startsWith("[")) {
      List<String> names = new ArrayList<>();
      TopicOffset.readTree(text).forEach(name -> names.add(name.asText()));
      return names;
    }
    return Stream.of(text.split(",")).map(String::strip).filter(name -> !name.isEmpty()).toList();
  }
}
