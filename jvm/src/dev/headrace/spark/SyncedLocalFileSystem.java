package dev.headrace.spark;

import java.io.IOException;
import java.net.URI;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.LocalFileSystem;

/**
 * The local file system for checkpoints (`fs.file.impl`): what was closed or renamed is on disk, and no operation
 * starts a child process. Hadoop's own syncs nothing and, without its native library, spawns some sixty processes per
 * micro-batch.
 *
 * <p>It extends Hadoop's because `FileSystem.getLocal` casts to that. Hadoop's checksum files are left out: they double
 * the files to sync. State has checksums of its own in RocksDB's files and in the compressed log of changes; the few
 * lines of JSON beside it have none.
 */
public final class SyncedLocalFileSystem extends LocalFileSystem {
  public SyncedLocalFileSystem() {
    super(new SyncedRawFileSystem());
  }

  @Override
  public void initialize(URI name, Configuration conf) throws IOException {
    super.initialize(name, conf);
    setWriteChecksum(false);
    setVerifyChecksum(false);
  }
}
