"""The checkpoints' file system behaves as Hadoop's does."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


class Files:
    """Hadoop's FileSystem for local paths, as Spark gets it."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        configuration = spark._jsc.hadoopConfiguration()
        self._path = jvm.org.apache.hadoop.fs.Path
        self.system = self._path("file:///").getFileSystem(configuration)
        # Casts to Hadoop's own class, so ours has to be one.
        self.local = jvm.org.apache.hadoop.fs.FileSystem.getLocal(configuration)

    def path(self, path: Path) -> Any:
        return self._path(str(path))

    def write(self, path: Path, content: bytes, overwrite: bool = True) -> None:
        out = self.system.create(self.path(path), overwrite)
        out.write(content, 0, len(content))
        out.close()

    def names(self, path: Path) -> list[str]:
        return [status.getPath().getName() for status in self.system.listStatus(self.path(path))]


@pytest.fixture
def files(spark: SparkSession) -> Files:
    return Files(spark)


def test_it_is_ours(files: Files) -> None:
    assert files.system.getClass().getName() == "dev.headrace.spark.SyncedLocalFileSystem"
    assert files.local.getClass().getName() == "dev.headrace.spark.SyncedLocalFileSystem"


def test_files_and_folders(files: Files, tmp_path: Path) -> None:
    deep = tmp_path / "a b" / "c"
    files.write(deep / "one", b"first")
    files.write(deep / "two", b"second")
    assert ((deep / "one").read_bytes(), (deep / "two").read_bytes()) == (b"first", b"second")
    # No checksum files beside them.
    assert (files.names(deep), sorted(os.listdir(deep))) == (["one", "two"], ["one", "two"])
    status = files.system.getFileStatus(files.path(deep / "two"))
    assert (status.getLen(), status.isFile(), status.getPermission().toShort()) == (6, True, 0o600)
    # Hadoop asks for 0777 and leaves the rest to a umask that it does not apply.
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in (deep, deep.parent)] == [0o700, 0o700]
    assert status.getModificationTime() == os.stat(deep / "two").st_mtime_ns // 1_000_000
    assert files.system.mkdirs(files.path(deep))
    assert files.system.getFileStatus(files.path(deep)).isDirectory()


def test_rename_replaces_and_moves(files: Files, tmp_path: Path) -> None:
    files.write(tmp_path / "new", b"new")
    files.write(tmp_path / "old", b"old")
    assert files.system.rename(files.path(tmp_path / "new"), files.path(tmp_path / "old"))
    assert (os.listdir(tmp_path), (tmp_path / "old").read_bytes()) == (["old"], b"new")
    files.system.mkdirs(files.path(tmp_path / "folder"))
    assert files.system.rename(files.path(tmp_path / "old"), files.path(tmp_path / "folder"))
    assert (tmp_path / "folder" / "old").read_bytes() == b"new"


def test_what_is_not_there(files: Files, tmp_path: Path) -> None:
    missing = files.path(tmp_path / "missing")
    assert not files.system.exists(missing)
    assert not files.system.delete(missing, True)
    for look in (files.system.getFileStatus, files.system.listStatus, files.system.open):
        with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
            look(missing)
    files.write(tmp_path / "there", b"")
    with pytest.raises(Py4JJavaError, match="FileAlreadyExistsException"):
        files.write(tmp_path / "there", b"again", overwrite=False)


def test_permissions_and_deletion(files: Files, tmp_path: Path, spark: SparkSession) -> None:
    file = tmp_path / "folder" / "file"
    files.write(file, b"x")
    jvm: Any = spark._jvm
    files.system.setPermission(files.path(file), jvm.org.apache.hadoop.fs.permission.FsPermission("600"))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert files.system.getFileStatus(files.path(file)).getPermission().toString() == "rw-------"
    with pytest.raises(Py4JJavaError, match="not empty"):
        files.system.delete(files.path(tmp_path / "folder"), False)
    assert files.system.delete(files.path(tmp_path / "folder"), True)
    assert os.listdir(tmp_path) == []
