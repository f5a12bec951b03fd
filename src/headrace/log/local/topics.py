"""topic.json: a topic's definition where other processes find it. The journal holds the same facts and wins."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from headrace.errors import LogError
from headrace.log.base import Topic
from headrace.log.local.files import make_folder, replace_file, sync_folder
from headrace.log.schema import is_topic_name, topic_from_json, topic_to_json

DEFINITION = "topic.json"


def topic_folder(folder: Path, name: str) -> Path:
    return folder / "topics" / name


def make_partitions(home: Path, count: int) -> None:
    """The folders of a topic's partitions that are not there yet, with one sync for all of them."""
    make_folder(home)
    there = set(os.listdir(home))
    missing = [str(number) for number in range(count) if str(number) not in there]
    for name in missing:
        (home / name).mkdir(exist_ok=True)
    if missing:
        sync_folder(home)


def write_definition(folder: Path, topic: Topic) -> None:
    home = topic_folder(folder, topic.name)
    make_folder(home)
    replace_file(home / DEFINITION, msgspec.json.format(msgspec.json.encode(topic_to_json(topic)), indent=1))


def read_definition(home: Path) -> Topic | None:
    """The topic a folder says it holds; None if it does not say, or not legibly."""
    try:
        return topic_from_json(msgspec.json.decode((home / DEFINITION).read_bytes()))
    except (OSError, msgspec.DecodeError, LogError):
        return None


class TopicFiles:
    """The definitions as files, read again when they change. For processes that are not the owner."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "topics"
        self._known: dict[str, tuple[tuple[int, int], Topic]] = {}

    def get(self, name: str) -> Topic | None:
        if not is_topic_name(name):
            return None
        try:
            status = os.stat(self._folder / name / DEFINITION)
        except OSError:
            self._known.pop(name, None)
            return None
        stamp = (status.st_ino, status.st_mtime_ns)
        known = self._known.get(name)
        if known is None or known[0] != stamp:
            topic = read_definition(self._folder / name)
            if topic is None:
                return None
            known = self._known[name] = (stamp, topic)
        return known[1]

    def all(self) -> list[Topic]:
        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return []
        return [topic for name in names if (topic := self.get(name))]
