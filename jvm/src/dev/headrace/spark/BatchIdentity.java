package dev.headrace.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.HexFormat;

/** What makes a query's batch the same when it is run again: the checkpoint's id, and what it says the batch reads. */
record BatchIdentity(String query, int version, String checkpoint, long batch, String offsets) {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Spark writes both files before it hands the batch to the sink. */
  static BatchIdentity of(WriteOptions options, long batch) throws IOException {
    Path folder = options.checkpoint();
    try {
      String id = JSON.readTree(Files.readString(folder.resolve("metadata"))).required("id").asText();
      String offsets = Files.readString(folder.resolve("offsets").resolve(Long.toString(batch)));
      return new BatchIdentity(options.query(), options.version(), id, batch, describe(offsets));
    } catch (NoSuchFileException error) {
      throw LogException.usage("the checkpoint `%s` has no batch %d".formatted(options.checkpoint(), batch));
    }
  }

  /** Of a batch that is the only one of its query; null if it was not said which. */
  static BatchIdentity ofBatch(WriteOptions options) {
    if (options.query() == null || options.offsets() == null) {
      return null;
    }
    return new BatchIdentity(options.query(), options.version(), "batch", 0, options.offsets());
  }

  /**
   * A digest of all that Spark wrote; for people and for `headrace query list`, where the first source ended; and the
   * arrival number that all sources were read up to, which is what the batch's rows include; and whether what those
   * records have closed is out with it.
   */
  private static String describe(String text) throws IOException {
    ObjectNode found = JSON.createObjectNode();
    // Two lines of Spark's own, then one per source: its offset as JSON, after its name and a colon if it has one.
    for (String line : text.lines().skip(2).toList()) {
      JsonNode offset = JSON.readTree(line.substring(Math.max(0, line.indexOf('{'))));
      if (offset.has("partitions")) {
        found.set("partitions", offset.get("partitions"));
        if (offset.has("arrival")) {
          found.set("arrival", offset.get("arrival"));
        }
        if (offset.has("closed")) {
          found.set("closed", offset.get("closed"));
        }
        break;
      }
    }
    return found.put("digest", digest(text)).toString();
  }

  private static String digest(String text) {
    try {
      MessageDigest sha = MessageDigest.getInstance("SHA-256");
      return HexFormat.of().formatHex(sha.digest(text.getBytes(StandardCharsets.UTF_8)));
    } catch (NoSuchAlgorithmException error) {
      throw new IllegalStateException(error);
    }
  }

  /** The number that all sources were read up to. */
  long arrival() throws IOException {
    return JSON.readTree(offsets).path("arrival").asLong(Long.MAX_VALUE);
  }

  ObjectNode json() {
    return JSON.createObjectNode()
        .put("query", query)
        .put("version", version)
        .put("checkpoint", checkpoint)
        .put("batch", batch)
        .put("offsets", offsets);
  }
}
