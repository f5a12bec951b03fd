package dev.headrace.spark;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.Arrays;

/** Understands the options `startingOffsets` and `endingOffsets`, at one moment of the log. */
record OffsetParser(TopicDefinition topic, LogMoment moment) {
  /** `earliest`, `latest`, {"arrival": 34} for all that arrived before it, or {"partitions": {"0": 12}}. */
  TopicOffset parse(String text) {
    PartitionEnds[] ends = moment.ends(topic);
    long[] starts = Arrays.stream(ends).mapToLong(PartitionEnds::start).toArray();
    switch (text) {
      case "earliest":
        return new TopicOffset(topic.id(), 0, starts);
      case "latest":
        return atArrival(moment.arrival());
      default:
        JsonNode body = TopicOffset.readTree(text);
        if (body.has("arrival") && !body.has("partitions")) {
          return atArrival(body.get("arrival").asLong());
        }
        return TopicOffset.parse(text, topic, starts);
    }
  }

  /** Everything of the topic that arrived before number `arrival`. */
  TopicOffset atArrival(long arrival) {
    PartitionEnds[] ends = moment.ends(topic);
    long[] offsets = new long[ends.length];
    try {
      for (int partition = 0; partition < offsets.length; partition++) {
        // At the moment itself, the usual case, there is nothing to search for.
        offsets[partition] =
            arrival >= moment.arrival()
                ? ends[partition].end()
                : ArrivalSearch.offsetAt(topic, partition, ends[partition], arrival);
      }
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
    return new TopicOffset(topic.id(), arrival, offsets);
  }
}
