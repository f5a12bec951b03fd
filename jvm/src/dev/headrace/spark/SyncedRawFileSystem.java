package dev.headrace.spark;

import java.io.File;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.FileChannel;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.LinkOption;
import java.nio.file.NoSuchFileException;
import java.nio.file.NotDirectoryException;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileTime;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** What of Hadoop's local file system would start `chmod`, `ls` or `readlink`, done in java.nio, and synced. */
final class SyncedRawFileSystem extends RawLocalFileSystem {
  private static final String ATTRIBUTES = "unix:mode,size,lastModifiedTime,lastAccessTime,isDirectory";
  private static final int PERMISSIONS = 07777;
  private static final int OWNER_ONLY = 0700;

  static void sync(java.nio.file.Path folder) throws IOException {
    try (FileChannel channel = FileChannel.open(folder)) {
      channel.force(true);
    }
  }

  @Override
  protected OutputStream createOutputStreamWithMode(Path path, boolean append, FsPermission permission)
      throws IOException {
    java.nio.file.Path file = pathToFile(path).toPath();
    boolean isNew = Files.notExists(file);
    OutputStream out = new SyncedOutputStream(file, append);
    if (isNew && permission != null) {
      setMode(file, permission);
    }
    return out;
  }

  @Override
  protected OutputStream createOutputStream(Path path, boolean append) throws IOException {
    return createOutputStreamWithMode(path, append, null);
  }

  /** Every file that is created asks for its folder, and Hadoop would try to make each folder above it too. */
  @Override
  public boolean mkdirs(Path path) throws IOException {
    return Files.isDirectory(pathToFile(path).toPath()) || super.mkdirs(path);
  }

  @Override
  protected boolean mkOneDirWithMode(Path path, File folder, FsPermission permission) throws IOException {
    java.nio.file.Path made = folder.toPath();
    try {
      Files.createDirectory(made);
    } catch (FileAlreadyExistsException error) {
      return false; // somebody else was faster; the caller looks whether it is a folder
    }
    setMode(made, permission == null ? FsPermission.getDirDefault() : permission);
    sync(made.toAbsolutePath().getParent());
    return true;
  }

  @Override
  public boolean rename(Path from, Path to) throws IOException {
    java.nio.file.Path source = pathToFile(from).toPath().toAbsolutePath();
    java.nio.file.Path target = pathToFile(to).toPath().toAbsolutePath();
    if (Files.isDirectory(target) || Files.notExists(source)) {
      return super.rename(from, to); // into a folder, or an error: Hadoop's rules, not worth repeating
    }
    Files.move(source, target, StandardCopyOption.ATOMIC_MOVE);
    sync(target.getParent());
    if (!source.getParent().equals(target.getParent())) {
      sync(source.getParent());
    }
    return true;
  }

  @Override
  public FileStatus getFileStatus(Path path) throws IOException {
    return status(path, pathToFile(path).toPath());
  }

  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    return status(path, pathToFile(path).toPath(), LinkOption.NOFOLLOW_LINKS);
  }

  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    java.nio.file.Path folder = pathToFile(path).toPath();
    List<FileStatus> found = new ArrayList<>();
    try (Stream<java.nio.file.Path> files = Files.list(folder)) {
      for (java.nio.file.Path file : files.sorted().toList()) {
        addIfThere(found, new Path(path, file.getFileName().toString()), file);
      }
    } catch (NotDirectoryException error) {
      return new FileStatus[] {getFileStatus(path)};
    } catch (NoSuchFileException error) {
      throw new FileNotFoundException("File " + path + " does not exist");
    }
    return found.toArray(FileStatus[]::new);
  }

  /** A file may be deleted between the listing and the look at it. */
  private void addIfThere(List<FileStatus> found, Path path, java.nio.file.Path file) throws IOException {
    try {
      found.add(status(path, file));
    } catch (FileNotFoundException error) {
      // then it is not listed
    }
  }

  /** Owner and group stay empty: finding their names costs more than the rest, and Spark does not ask. */
  private FileStatus status(Path path, java.nio.file.Path file, LinkOption... links) throws IOException {
    try {
      Map<String, Object> found = Files.readAttributes(file, ATTRIBUTES, links);
      boolean isFolder = (Boolean) found.get("isDirectory");
      return new FileStatus(
          isFolder ? 0 : (Long) found.get("size"),
          isFolder,
          1,
          getDefaultBlockSize(path),
          ((FileTime) found.get("lastModifiedTime")).toMillis(),
          ((FileTime) found.get("lastAccessTime")).toMillis(),
          new FsPermission((short) ((Integer) found.get("mode") & PERMISSIONS)),
          null,
          null,
          path.makeQualified(getUri(), getWorkingDirectory()));
    } catch (NoSuchFileException | NotDirectoryException error) {
      throw new FileNotFoundException("File " + path + " does not exist");
    }
  }

  @Override
  public void setPermission(Path path, FsPermission permission) throws IOException {
    setMode(pathToFile(path).toPath(), permission);
  }

  /** Hadoop asks for 0777 and leaves the rest to a umask that it does not apply: others get nothing. */
  private static void setMode(java.nio.file.Path file, FsPermission permission) throws IOException {
    Files.setAttribute(file, "unix:mode", permission.toShort() & OWNER_ONLY);
  }
}
