package dev.headrace.spark.kafka;

import java.io.IOException;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.PriorityQueue;
import java.util.TreeMap;
import org.apache.spark.SparkContext;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;

/**
 * Which records of several topics come first: by the time that their partition has reached with them, then by their
 * input's rank, partition and offset. One task reads them for that, once more than the query's own do; only a query
 * over several topics that is far behind needs it. (Kafka's own search by time would also find the marks that end
 * transactions, which are of the time they were written.)
 */
final class OrderedCut {
  private static final Comparator<Cursor> ORDER =
      Comparator.<Cursor>comparingLong(cursor -> cursor.reached)
          .thenComparingInt(cursor -> cursor.topic.rank())
          .thenComparingInt(cursor -> cursor.partition);

  private OrderedCut() {}

  /** The ends of the first `most` records before `latest`. */
  static Map<TopicTimes, KafkaOffsets> first(Map<TopicTimes, KafkaOffsets> latest, long most) {
    ArrayList<Ranges> ranges = new ArrayList<>();
    latest.forEach((topic, end) -> ranges.add(Ranges.of(topic, end)));
    Map<String, Map<Integer, Long>> waiting =
        JavaSparkContext.fromSparkContext(SparkContext.getOrCreate())
            .parallelize(List.of(new Reading(ranges, most)), 1)
            .map(Reading::waiting)
            .first();
    Map<TopicTimes, KafkaOffsets> found = new LinkedHashMap<>();
    latest.forEach(
        (topic, end) -> {
          Map<Integer, Long> places = new TreeMap<>(end.places());
          places.putAll(waiting.getOrDefault(end.topic(), Map.of()));
          found.put(topic, new KafkaOffsets(end.topic(), places));
        });
    return found;
  }

  /** What is new in a topic. `times`: how far time had come before it. */
  private record Ranges(
      String name, int rank, HashMap<Integer, Long> times, InputPartition[] parts, PartitionReaderFactory factory)
      implements Serializable {
    private static final long serialVersionUID = 1L;

    static Ranges of(TopicTimes topic, KafkaOffsets end) {
      KafkaTopicStream reader = topic.reader();
      return new Ranges(
          end.topic(),
          topic.rank(),
          new HashMap<>(topic.times()),
          reader.ranges(topic.start(), end),
          reader.records().createReaderFactory());
    }
  }

  /** The task. */
  private record Reading(ArrayList<Ranges> topics, long most) implements Serializable {
    private static final long serialVersionUID = 1L;

    /** By topic and partition, the first record that is not among the first: its partition ends before it. */
    Map<String, Map<Integer, Long>> waiting() throws IOException {
      List<Cursor> opened = new ArrayList<>();
      try {
        PriorityQueue<Cursor> queue = new PriorityQueue<>(ORDER);
        for (Ranges topic : topics) {
          for (InputPartition part : topic.parts()) {
            opened.add(new Cursor(topic, topic.factory().createReader(part)));
          }
        }
        for (Cursor cursor : opened) {
          cursor.advanceInto(queue);
        }
        for (long taken = 0; taken < most && !queue.isEmpty(); taken++) {
          queue.poll().advanceInto(queue);
        }
        Map<String, Map<Integer, Long>> found = new HashMap<>();
        for (Cursor cursor : queue) {
          found.computeIfAbsent(cursor.topic.name(), name -> new HashMap<>()).put(cursor.partition, cursor.offset);
        }
        return found;
      } finally {
        opened.forEach(Cursor::close);
      }
    }
  }

  /** The next record of a partition. */
  private static final class Cursor {
    private final Ranges topic;
    private final PartitionReader<InternalRow> records;
    private int partition = -1;
    private long reached;
    private long offset;

    Cursor(Ranges topic, PartitionReader<InternalRow> records) {
      this.topic = topic;
      this.records = records;
    }

    void advanceInto(PriorityQueue<Cursor> queue) throws IOException {
      if (!records.next()) {
        return;
      }
      InternalRow record = records.get();
      if (partition < 0) {
        partition = record.getInt(StampingReader.PARTITION);
        reached = topic.times().getOrDefault(partition, -1L);
      }
      reached = Math.max(reached, StampingReader.eventTime(record));
      offset = record.getLong(StampingReader.OFFSET);
      queue.add(this);
    }

    void close() {
      try {
        records.close();
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }
}
