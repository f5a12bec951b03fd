package dev.headrace.spark;

import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;

/** Which columns of a topic are read. */
final class Projection {
  private Projection() {}

  /** The named columns of the topic, in the order named; all if none is. */
  static StructType of(StructType topic, List<String> columns) {
    if (columns.isEmpty()) {
      return topic;
    }
    StructType found = new StructType();
    Set<String> known = new HashSet<>(Arrays.asList(topic.fieldNames()));
    for (String name : columns) {
      if (!known.contains(name)) {
        throw LogException.usage("no column `%s`; there are %s".formatted(name, String.join(", ", topic.fieldNames())));
      }
      found = found.add(topic.apply(name));
    }
    return found;
  }

  /** A schema that a reader gave, checked: the topic's columns must have its types, others are null. */
  static StructType check(StructType topic, StructType asked) {
    Set<String> known = new HashSet<>(Arrays.asList(topic.fieldNames()));
    StructType found = new StructType();
    for (StructField field : asked.fields()) {
      boolean here = known.contains(field.name());
      if (here && !topic.apply(field.name()).dataType().sameType(field.dataType())) {
        throw LogException.usage(
            "column `%s` is asked for as %s, the topic has %s"
                .formatted(field.name(), field.dataType().sql(), topic.apply(field.name()).dataType().sql()));
      }
      found = found.add(field.name(), field.dataType(), !here || topic.apply(field.name()).nullable());
    }
    return found;
  }
}
