package dev.headrace.spark.operators;

import java.io.Serializable;
import java.math.BigDecimal;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.RowFactory;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Partial results that can be merged. Kinds: {@code sum} (integers wrap), {@code min}, {@code max}, {@code first} and
 * {@code last} (structures that begin with an arrival number), {@code list} (arrays, put one behind the other), {@code
 * set} (arrays, each value once), {@code moments} (count, mean, sum of squared differences), and lists that are kept
 * short, such as {@code earliest:10} ({@link Entries}). Null is nothing yet.
 */
final class Partials implements Serializable {
  private static final long serialVersionUID = 1L;

  private final String[] kinds;

  Partials(String[] kinds) {
    this.kinds = kinds;
  }

  Row merge(Row one, Row other) {
    Object[] merged = new Object[kinds.length];
    for (int place = 0; place < kinds.length; place++) {
      Object a = one.get(place);
      Object b = other.get(place);
      merged[place] = a == null ? b : b == null ? a : merge(kinds[place], one, other, place);
    }
    return RowFactory.create(merged);
  }

  private static Object merge(String kind, Row one, Row other, int place) {
    Object a = one.get(place);
    Object b = other.get(place);
    return switch (kind) {
      case "sum" -> sum(a, b);
      case "min" -> compare(a, b) <= 0 ? a : b;
      case "max" -> compare(a, b) >= 0 ? a : b;
      case "first" -> compare(((Row) a).get(0), ((Row) b).get(0)) <= 0 ? a : b;
      case "last" -> compare(((Row) a).get(0), ((Row) b).get(0)) >= 0 ? a : b;
      case "list" -> {
        List<Object> both = new ArrayList<>(one.getList(place));
        both.addAll(other.getList(place));
        yield CollectionConverters.asScala(both).toSeq();
      }
      case "set" -> {
        Set<Object> both = new LinkedHashSet<>(one.getList(place));
        both.addAll(other.getList(place));
        yield CollectionConverters.asScala(new ArrayList<>(both)).toSeq();
      }
      case "moments" -> moments((Row) a, (Row) b);
      default -> shortList(kind, one.getList(place), other.getList(place));
    };
  }

  private static Object shortList(String kind, List<Row> one, List<Row> other) {
    int colon = kind.indexOf(':');
    int most = Integer.parseInt(kind.substring(colon + 1));
    List<Row> kept = Entries.merge(kind.substring(0, colon), most, one, other);
    return CollectionConverters.asScala(kept).toSeq();
  }

  /** Exact where a difference of sums of squares would not be. */
  private static Row moments(Row a, Row b) {
    double count = a.getDouble(0) + b.getDouble(0);
    double apart = b.getDouble(1) - a.getDouble(1);
    double mean = a.getDouble(1) + apart * b.getDouble(0) / count;
    double squares = a.getDouble(2) + b.getDouble(2) + apart * apart * a.getDouble(0) * b.getDouble(0) / count;
    return RowFactory.create(count, mean, squares);
  }

  private static Object sum(Object a, Object b) {
    if (a instanceof Integer number) {
      return number + (Integer) b;
    }
    if (a instanceof Long number) {
      return number + (Long) b;
    }
    if (a instanceof Double number) {
      return number + (Double) b;
    }
    return ((BigDecimal) a).add((BigDecimal) b);
  }

  @SuppressWarnings("unchecked")
  static int compare(Object a, Object b) {
    if (a instanceof byte[] bytes) {
      return Arrays.compareUnsigned(bytes, (byte[]) b);
    }
    if (a instanceof String text) {
      // As Spark does: by bytes, not by UTF-16.
      byte[] other = ((String) b).getBytes(StandardCharsets.UTF_8);
      return Arrays.compareUnsigned(text.getBytes(StandardCharsets.UTF_8), other);
    }
    if (a instanceof Row row) {
      // An arrival on Kafka: several numbers, the first that differs decides.
      for (int place = 0; place < row.size(); place++) {
        int order = compare(row.get(place), ((Row) b).get(place));
        if (order != 0) {
          return order;
        }
      }
      return 0;
    }
    return ((Comparable<Object>) a).compareTo(b);
  }
}
