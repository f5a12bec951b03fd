package dev.headrace.spark;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Path;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * What a writer was told.
 *
 * @param routes which columns go to which topic, in the owner's words (docs/log-format.md, `stage`)
 * @param query whose batches these are, with `version`; a stream needs it, a batch may have it
 * @param offsets of a batch with a query: what it reads, as JSON
 * @param knownUntil what arrived before this number has its results in the log already: such batches are for the state
 * @param checkpoint the folder of the stream's checkpoint; where Spark was told it is, unless said otherwise
 */
record WriteOptions(
    Path path, JsonNode routes, String query, String offsets, int version, long knownUntil, Path checkpoint) {
  static WriteOptions parse(CaseInsensitiveStringMap options) {
    String checkpoint = options.getOrDefault("checkpoint", options.get("checkpointLocation"));
    return new WriteOptions(
        Path.of(required(options, "path")),
        routes(required(options, "routes")),
        options.get("query"),
        options.get("offsets"),
        options.getInt("version", 1),
        options.getLong("knownUntil", 0),
        checkpoint == null ? null : Path.of(new org.apache.hadoop.fs.Path(checkpoint).toUri().getPath()));
  }

  private static String required(CaseInsensitiveStringMap options, String name) {
    String value = options.get(name);
    if (value == null || value.isEmpty()) {
      throw LogException.usage("option `%s` is missing".formatted(name));
    }
    return value;
  }

  private static JsonNode routes(String text) {
    try {
      JsonNode routes = new ObjectMapper().readTree(text);
      if (routes.isArray() && !routes.isEmpty()) {
        return routes;
      }
    } catch (JsonProcessingException error) {
      // said below
    }
    throw LogException.usage(
        "option `routes` must be like [{\"topic\": \"t\", \"columns\": {\"A\": \"a\"}}], not `%s`".formatted(text));
  }

  /** Without these a batch has no identity, and a repeated one would be written twice. */
  WriteOptions checkedForStreaming() {
    if (query == null || checkpoint == null) {
      throw LogException.usage("a stream is written with the options `query` and `checkpoint`");
    }
    return this;
  }
}
