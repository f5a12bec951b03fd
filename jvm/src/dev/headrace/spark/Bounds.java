package dev.headrace.spark;

import java.nio.file.Path;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Arrival numbers that groups of sources must not reach: a stream reads no record with this number or a larger one. A
 * bound may be set before its query starts, and changed while it runs: the next batch keeps to it.
 */
public final class Bounds {
  private static final Map<String, Long> BOUNDS = new ConcurrentHashMap<>();

  private Bounds() {}

  /** `cut` names the group, as the option of that name does. */
  public static void set(String path, String cut, long arrival) {
    BOUNDS.put(name(Path.of(path), cut), arrival);
  }

  public static void clear(String path, String cut) {
    BOUNDS.remove(name(Path.of(path), cut));
  }

  /** A source that names no group has no bound. */
  static long of(ReadOptions options) {
    return options.cut() == null ? Long.MAX_VALUE : BOUNDS.getOrDefault(name(options.path(), options.cut()), Long.MAX_VALUE);
  }

  private static String name(Path path, String cut) {
    return path + "\n" + cut;
  }
}
