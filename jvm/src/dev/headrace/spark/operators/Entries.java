package dev.headrace.spark.operators;

import java.nio.ByteBuffer;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Comparator;
import java.util.Deque;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;

/**
 * Lists of entries that are merged and kept short. An entry is a structure that begins with an arrival, a place
 * among the rows of one record, and a value. What a list keeps depends only on which entries there were, not on how they
 * were divided into the lists that it was made of.
 */
final class Entries {
  private static final int ARRIVAL = 0;
  private static final int PLACE = 1;
  private static final int VALUE = 2;
  private static final int COUNT = 3;

  private static final Comparator<Row> BY_ORDER =
      ((Comparator<Row>) (a, b) -> Partials.compare(a.get(ARRIVAL), b.get(ARRIVAL)))
          .thenComparingInt(entry -> entry.getInt(PLACE));
  private static final Comparator<Row> BY_VALUE =
      ((Comparator<Row>) (a, b) -> Partials.compare(b.get(VALUE), a.get(VALUE))).thenComparing(BY_ORDER);

  private Entries() {}

  /** Both lists are as this method, or a single row, made them. */
  static List<Row> merge(String kind, int most, List<Row> one, List<Row> other) {
    boolean full = !one.isEmpty() && one.size() >= most;
    if (full && other.size() == 1 && isOut(kind, one, other.get(0))) {
      return one;
    }
    List<Row> both = new ArrayList<>(one.size() + other.size());
    both.addAll(one);
    both.addAll(other);
    return switch (kind) {
      case "earliest" -> cut(sorted(both, BY_ORDER), most);
      case "latest" -> cut(sorted(both, BY_ORDER.reversed()), most);
      case "distinct" -> cut(different(sorted(both, BY_ORDER)), most);
      case "top" -> cut(sorted(both, BY_VALUE), most);
      case "top_distinct" -> cut(different(sorted(both, BY_VALUE)), most);
      case "counts" -> cut(counted(sorted(both, BY_ORDER)), most);
      case "net" -> net(sorted(both, BY_ORDER));
      default -> throw new IllegalArgumentException("no list is kept as `" + kind + "`");
    };
  }

  /** Whether a full list cannot change for the sake of this entry: the usual case, which then costs nothing. */
  private static boolean isOut(String kind, List<Row> full, Row entry) {
    Row last = full.get(full.size() - 1);
    return switch (kind) {
      case "earliest", "distinct" -> BY_ORDER.compare(entry, last) > 0;
      case "latest" -> BY_ORDER.compare(entry, last) < 0;
      case "top", "top_distinct" -> BY_VALUE.compare(entry, last) > 0;
      default -> false;
    };
  }

  private static List<Row> sorted(List<Row> entries, Comparator<Row> order) {
    entries.sort(order);
    return entries;
  }

  private static List<Row> cut(List<Row> entries, int most) {
    return entries.size() <= most ? entries : new ArrayList<>(entries.subList(0, most));
  }

  /** The first of each value. */
  private static List<Row> different(Collection<Row> entries) {
    Map<Object, Row> found = new LinkedHashMap<>();
    for (Row entry : entries) {
      found.putIfAbsent(identity(entry.get(VALUE)), entry);
    }
    return new ArrayList<>(found.values());
  }

  /**
   * What is left of values that came (1 behind the value) and went (-1): one that goes takes the last like it with it, and
   * waits for it if it is not there yet.
   */
  private static List<Row> net(Collection<Row> entries) {
    Map<Object, Deque<Integer>> places = new HashMap<>();
    List<Row> kept = new ArrayList<>();
    for (Row entry : entries) {
      Deque<Integer> alike = places.computeIfAbsent(identity(entry.get(VALUE)), value -> new ArrayDeque<>());
      if (entry.getLong(COUNT) > 0) {
        alike.push(kept.size());
        kept.add(entry);
      } else if (alike.isEmpty()) {
        kept.add(entry);
      } else {
        kept.set(alike.pop(), null);
      }
    }
    kept.removeIf(Objects::isNull);
    return kept;
  }

  /** The first of each value, with how many there are; none that there are none of. */
  private static List<Row> counted(Collection<Row> entries) {
    Map<Object, Row> found = new LinkedHashMap<>();
    for (Row entry : entries) {
      found.merge(
          identity(entry.get(VALUE)),
          entry,
          (first, more) ->
              RowFactory.create(
                  first.get(ARRIVAL), first.get(PLACE), first.get(VALUE), first.getLong(COUNT) + more.getLong(COUNT)));
    }
    found.values().removeIf(entry -> entry.getLong(COUNT) == 0);
    return new ArrayList<>(found.values());
  }

  /** Equal for equal values: to Java two arrays of the same bytes are not, and zero has a sign. */
  private static Object identity(Object value) {
    if (value instanceof byte[] bytes) {
      return ByteBuffer.wrap(bytes);
    }
    return value instanceof Double number && number == 0.0 ? Double.valueOf(0.0) : value;
  }
}
