package dev.headrace.spark.kafka;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.Column;
import org.apache.spark.sql.api.java.UDF6;
import org.apache.spark.sql.expressions.UserDefinedFunction;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.util.AccumulatorV2;

/**
 * Records of a query that could not be decoded: tasks put them in, and the driver, which writes a batch's results,
 * writes them in the same transaction. A record that tasks find twice is here once.
 */
public final class DeadLetterBox {
  private final Letters letters = new Letters();

  public DeadLetterBox() {
    SparkContext.getOrCreate().register(letters, "headrace dead letters");
  }

  /** What a task found. */
  public record Letter(String topic, int partition, long offset, String reason, byte[] payload, String id)
      implements Serializable {
    private static final long serialVersionUID = 1L;

    private String place() {
      return topic + " " + partition + " " + offset;
    }
  }

  /** False for every record it is evaluated for, which is then in the box. */
  public Column bury(Column topic, Column partition, Column offset, Column reason, Column payload, Column id) {
    Letters box = letters;
    UDF6<String, Integer, Long, String, byte[], String, Boolean> put =
        (ofTopic, inPartition, at, why, bytes, eventId) -> {
          box.add(new Letter(ofTopic, inPartition, at, why, bytes, eventId));
          return false;
        };
    // Spark must neither leave it out nor move it.
    UserDefinedFunction burying = functions.udf(put, DataTypes.BooleanType).asNondeterministic();
    return burying.apply(topic, partition, offset, reason, payload, id);
  }

  public void clear() {
    letters.reset();
  }

  public List<Letter> letters() {
    return letters.value();
  }

  private static final class Letters extends AccumulatorV2<Letter, List<Letter>> {
    private static final long serialVersionUID = 1L;

    private final HashMap<String, Letter> byPlace = new HashMap<>();

    @Override
    public synchronized void add(Letter letter) {
      byPlace.put(letter.place(), letter);
    }

    @Override
    public void merge(AccumulatorV2<Letter, List<Letter>> other) {
      other.value().forEach(this::add);
    }

    @Override
    public synchronized List<Letter> value() {
      return new ArrayList<>(byPlace.values());
    }

    @Override
    public synchronized boolean isZero() {
      return byPlace.isEmpty();
    }

    @Override
    public synchronized void reset() {
      byPlace.clear();
    }

    @Override
    public Letters copy() {
      Letters copied = new Letters();
      value().forEach(copied::add);
      return copied;
    }
  }
}
