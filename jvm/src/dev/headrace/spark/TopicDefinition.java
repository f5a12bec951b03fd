package dev.headrace.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.channels.Channels;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Base64;
import java.util.TreeMap;
import org.apache.arrow.vector.ipc.ReadChannel;
import org.apache.arrow.vector.ipc.message.MessageSerializer;
import org.apache.arrow.vector.types.pojo.Field;
import org.apache.arrow.vector.types.pojo.Schema;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.ArrowUtils;

/** A topic's `topic.json`, as far as reading its frames needs it. */
record TopicDefinition(
    Path folder, int id, int forkedFrom, String name, int partitions, TreeMap<Integer, Schema> schemas) {
  static final String PARTITION = "$partition";
  static final String OFFSET = "$offset";
  static final String ARRIVAL = "$arrival";
  static final String STREAM_TIME = "$stream_time";
  static final String TIME = "$time";
  private static final ObjectMapper JSON = new ObjectMapper();

  static TopicDefinition load(Path logFolder, String name) {
    Path folder = logFolder.resolve("topics").resolve(name);
    try {
      return parse(folder, Files.readString(folder.resolve("topic.json")));
    } catch (NoSuchFileException error) {
      throw LogException.usage("topic `%s` does not exist in the log `%s`".formatted(name, logFolder));
    } catch (IOException error) {
      throw new UncheckedIOException(error);
    }
  }

  private static TopicDefinition parse(Path folder, String text) throws IOException {
    JsonNode body = JSON.readTree(text);
    TreeMap<Integer, Schema> schemas = new TreeMap<>();
    for (JsonNode version : body.required("schemas")) {
      schemas.put(version.required("version").asInt(), arrowSchema(version.required("arrow").asText()));
    }
    return new TopicDefinition(
        folder,
        body.required("id").asInt(),
        body.path("forked_from").asInt(0),
        body.required("name").asText(),
        body.required("partitions").asInt(),
        schemas);
  }

  private static Schema arrowSchema(String base64) throws IOException {
    var bytes = new ByteArrayInputStream(Base64.getDecoder().decode(base64));
    return MessageSerializer.deserializeSchema(new ReadChannel(Channels.newChannel(bytes)));
  }

  /** The newest schema in Spark's types, after the two columns that no frame has: where a record is. */
  StructType sparkSchema() {
    StructType found =
        new StructType().add(PARTITION, DataTypes.IntegerType, false).add(OFFSET, DataTypes.LongType, false);
    for (Field field : schemas.lastEntry().getValue().getFields()) {
      if (!field.getName().equals(OFFSET)) {
        found = found.add(field.getName(), ArrowUtils.fromArrowField(field), field.isNullable());
      }
    }
    return found;
  }

  PartitionFolder partition(int number) {
    return new PartitionFolder(folder.resolve(Integer.toString(number)), name, id, forkedFrom, number);
  }

  /** The columns of a frame, without `$offset`. A version registered after this was loaded is read now. */
  Schema schema(int version) {
    return schemas.computeIfAbsent(version, unknown -> reload().schemas.get(unknown));
  }

  /** Whether this is the topic with that id, or a fork of it, which has its records at the same offsets. */
  boolean continues(int topicId) {
    return topicId == id || (forkedFrom != 0 && topicId == forkedFrom);
  }

  TopicDefinition reload() {
    TopicDefinition now = load(folder.getParent().getParent(), name);
    if (now.id != id) {
      throw LogException.topicReplaced(name, id, now.id);
    }
    return now;
  }
}
