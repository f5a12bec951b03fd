package dev.headrace.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** What of a partition is in the archive, as its manifest said when it was read. */
final class PartitionArchive {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int HAS_OFFSETS = 1;
  private static final PartitionArchive EMPTY = new PartitionArchive(new TreeMap<>());
  private final TreeMap<Long, ArchivedFile> files;

  private PartitionArchive(TreeMap<Long, ArchivedFile> files) {
    this.files = files;
  }

  static PartitionArchive load(Path partition) throws IOException {
    try {
      Path log = partition.getParent().getParent().getParent();
      TreeMap<Long, ArchivedFile> found = new TreeMap<>();
      for (JsonNode file : JSON.readTree(Files.readString(partition.resolve("archived.json"))).required("files")) {
        ArchivedFile archived = parse(log, file);
        found.put(archived.base(), archived);
      }
      return new PartitionArchive(found);
    } catch (NoSuchFileException error) {
      return EMPTY;
    }
  }

  private static ArchivedFile parse(Path log, JsonNode body) {
    int version = body.required("version").asInt();
    List<FrameHeader> frames = new ArrayList<>();
    for (JsonNode frame : body.required("frames")) {
      long base = frame.get(0).asLong();
      long next = frame.get(1).asLong();
      int rows = frame.get(2).asInt();
      int flags = rows < next - base ? HAS_OFFSETS : 0;
      frames.add(
          new FrameHeader(
              -1, 0, 0, rows, base, next, frame.get(3).asLong(), frame.get(4).asLong(), frame.get(7).asLong(), version, flags));
    }
    return new ArchivedFile(
        log.resolve(body.required("file").asText()),
        body.required("base").asLong(),
        body.required("next").asLong(),
        version,
        frames);
  }

  /** The file that holds `offset`, or null. */
  ArchivedFile at(long offset) {
    Map.Entry<Long, ArchivedFile> found = files.floorEntry(offset);
    return found != null && offset < found.getValue().next() ? found.getValue() : null;
  }
}
