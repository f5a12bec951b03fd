package dev.headrace.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.spark.sql.connector.read.streaming.ReadAllAvailable;
import org.apache.spark.sql.connector.read.streaming.ReadLimit;

/**
 * The sources of one query that read up to one common arrival number per trigger.
 *
 * <p>Spark asks every source once per trigger, one after the other. Whoever is asked first decides for all: everything
 * that is visible now, or less if some source's row limit says so. The others get the same number. When a source is
 * asked for the second time, the next trigger has come.
 *
 * <p>If no source has new records, every source keeps its offset, though the log's arrival number may have grown: a
 * new offset would start an empty batch. Otherwise all move, also those without new records, so the sources of a query
 * are always at the same arrival number and one of them can tell, after a restart, where the others are.
 *
 * <p>Where results wait for time (`closes`), what a batch's records have closed comes out of the next batch, as Spark's
 * watermark moves between them. So a place is followed by the same one, `closed`, in a batch without records: at once if
 * there are none, and every now and then if there always are. It says of which records alone the results are.
 */
final class CutGroup {
  /** While records keep coming, a batch without any is worth so much time. */
  private static final long CLOSE_NANOS = 1_000_000_000;

  private static final Map<String, CutGroup> GROUPS = new ConcurrentHashMap<>();

  private final String key;
  private final ReadOptions options;
  private final StableFile stable;
  private final Map<TopicStream, TopicOffset> members = new LinkedHashMap<>();
  private final Map<TopicStream, TopicOffset> decided = new HashMap<>();
  private final BatchSize size;
  private LogMoment first;
  private LogMoment last;
  private long closedAt = System.nanoTime();

  private CutGroup(String key, ReadOptions options) {
    this.key = key;
    this.options = options;
    this.stable = new StableFile(options.path());
    this.size = new BatchSize(options);
  }

  /**
   * The group that the options name, within one run of one query: its checkpoint is part of the key, since two queries
   * may use the same name. A source that names none is a group of its own.
   */
  static CutGroup of(ReadOptions options, String checkpointLocation) {
    if (options.cut() == null) {
      return new CutGroup(null, options);
    }
    // <checkpoint>/sources/<number or name>
    String checkpoint = checkpointLocation.replaceFirst("/[^/]+/?$", "");
    String key = String.join("\n", options.path().toString(), checkpoint, options.cut());
    return GROUPS.computeIfAbsent(key, unused -> new CutGroup(key, options));
  }

  synchronized void join(TopicStream member) {
    members.put(member, null);
  }

  synchronized void leave(TopicStream member) {
    members.remove(member);
    if (members.isEmpty() && key != null) {
      GROUPS.remove(key, this);
    }
  }

  LogMoment now() {
    return stable.read();
  }

  /** One moment for all that start with what is there now. */
  synchronized LogMoment firstMoment() {
    if (first == null) {
      first = now();
    }
    return first;
  }

  /** For the trigger `availableNow`: read in as many batches as it takes, but nothing that comes later. */
  synchronized void stopAtThisMoment() {
    if (last == null) {
      last = now();
    }
  }

  /** How far `member` may read in this trigger, which it starts at `start`. */
  synchronized TopicOffset next(TopicStream member, TopicOffset start, ReadLimit limit) {
    if (!decided.containsKey(member)) {
      members.put(member, start);
      try {
        // Some triggers overrule a source's own limit.
        decide(start, member.maxRowsPerTrigger() > 0 && limit instanceof ReadAllAvailable);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
    TopicOffset end = decided.remove(member).orStart(start);
    members.put(member, end);
    return end;
  }

  private void decide(TopicOffset asked, boolean unlimited) throws IOException {
    LogMoment moment = last == null ? now() : last;
    decided.clear();
    Map<TopicStream, TopicOffset> starts = new LinkedHashMap<>();
    for (Map.Entry<TopicStream, TopicOffset> entry : members.entrySet()) {
      TopicOffset known = entry.getValue();
      starts.put(entry.getKey(), known != null ? known : start(entry.getKey(), asked, moment));
    }
    // All of a query rest where they have to, and end a batch where they must.
    long most = Bounds.of(options);
    long stop = Math.min(most, members.keySet().stream().mapToLong(TopicStream::stopAt).max().orElse(0));
    size.adjust();
    long full = unlimited ? moment.arrival() : cut(starts, moment);
    long cut = Math.min(most, full);
    boolean open = !asked.closed() && members.keySet().stream().anyMatch(TopicStream::closes);
    Map<TopicStream, TopicOffset> ends = ends(starts, moment, cut);
    if (stop > 0 && asked.arrival() <= stop) {
      Map<TopicStream, TopicOffset> known = ends(starts, moment, Math.min(stop, cut));
      // What the records before the stop have closed belongs to what was before it.
      ends = open || isNew(starts, known) ? known : ends;
    }
    boolean anyNew = isNew(starts, ends);
    if (open && (!anyNew || System.nanoTime() - closedAt >= CLOSE_NANOS)) {
      starts.forEach((member, start) -> decided.put(member, start.closed(true)));
      closedAt = System.nanoTime();
      return;
    }
    decided.putAll(anyNew ? ends : starts);
    size.chosen(anyNew && full <= most && full < moment.arrival());
    if (!anyNew && last == null) {
      // What comes meanwhile is found when Spark asks again, at once: so the wait does not count as a batch's time.
      stable.awaitAfter(moment);
    }
  }

  private static Map<TopicStream, TopicOffset> ends(Map<TopicStream, TopicOffset> starts, LogMoment moment, long cut) {
    Map<TopicStream, TopicOffset> ends = new HashMap<>();
    for (Map.Entry<TopicStream, TopicOffset> start : starts.entrySet()) {
      TopicOffset end = new OffsetParser(start.getKey().topic(moment), moment).atArrival(cut);
      ends.put(start.getKey(), end.orStart(start.getValue()));
    }
    return ends;
  }

  private static boolean isNew(Map<TopicStream, TopicOffset> starts, Map<TopicStream, TopicOffset> ends) {
    return starts.entrySet().stream().anyMatch(start -> !ends.get(start.getKey()).sameOffsets(start.getValue()));
  }

  /** Where a source will start that Spark has not asked yet: where the one that was asked is. */
  private TopicOffset start(TopicStream member, TopicOffset asked, LogMoment moment) {
    if (asked.arrival() == 0) {
      return member.initialOffset();
    }
    return new OffsetParser(member.topic(moment), moment).atArrival(asked.arrival()).closed(asked.closed());
  }

  private long cut(Map<TopicStream, TopicOffset> starts, LogMoment moment) throws IOException {
    long cut = moment.arrival();
    // A query may read a topic twice, such as once more for late records; looking once is enough.
    Set<String> looked = new HashSet<>();
    for (Map.Entry<TopicStream, TopicOffset> entry : starts.entrySet()) {
      long limit = size.atMost(entry.getKey().maxRowsPerTrigger());
      if (limit > 0 && looked.add(entry.getValue().json() + limit)) {
        TopicDefinition topic = entry.getKey().topic(moment);
        long[] from = entry.getValue().offsets(topic.partitions());
        cut = RowLimit.cut(topic, from, moment.ends(topic), limit, cut);
      }
    }
    return cut;
  }
}
