package dev.headrace.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.TreeSet;
import java.util.stream.Stream;

/** The folder of a partition's segments. Files come and go (retention, rewriting): if one vanished, list again. */
record PartitionFolder(Path folder, String topic, int topicId, int forkedFrom, int partition) {
  private static final int ATTEMPTS = 10;

  Path segment(long baseOffset) {
    return folder.resolve("%020d.seg".formatted(baseOffset));
  }

  /** The segment that holds `offset`, opened; null if there is none (it is archived, or was deleted). */
  SegmentFile open(long offset) throws IOException {
    for (int attempt = 0; attempt < ATTEMPTS; attempt++) {
      Long base = baseOffsets().floor(offset);
      if (base == null) {
        return null;
      }
      try {
        return SegmentFile.open(this, base);
      } catch (NoSuchFileException error) {
        continue;
      }
    }
    throw new IOException("segments of `%s` vanish faster than they can be opened".formatted(folder));
  }

  /** The base offset of every segment, in order. */
  TreeSet<Long> baseOffsets() throws IOException {
    TreeSet<Long> found = new TreeSet<>();
    try (Stream<Path> files = Files.list(folder)) {
      files.map(file -> file.getFileName().toString())
          .filter(name -> name.length() == 24 && name.endsWith(".seg"))
          .forEach(name -> found.add(Long.parseLong(name, 0, 20, 10)));
    } catch (NoSuchFileException error) {
      return found;
    } catch (UncheckedIOException error) {
      throw error.getCause();
    }
    return found;
  }

  PartitionArchive archive() throws IOException {
    return PartitionArchive.load(folder);
  }

  /** The offsets that were set aside because their bytes are damaged: readers pass over exactly those. */
  OffsetRanges quarantined() throws IOException {
    try {
      return OffsetRanges.parse(Files.readString(folder.resolve("quarantined.json")));
    } catch (NoSuchFileException error) {
      return OffsetRanges.NONE;
    }
  }
}
