"""Forking a topic: another one that has the same records at the same offsets, without copying them.

Sealed segments are never written again, only replaced or deleted by name, so the fork has hard links to them. Their
headers name the topic they were written for; `forked_from` says that this is right.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from headrace.log.base import Topic
from headrace.log.local.files import make_folder, sync_folder, write_all
from headrace.log.local.segment import HEADER_SIZE, encode_segment_header, index_path, list_segments, segment_path
from headrace.log.local.state import PartitionState, TopicState
from headrace.log.local.topics import topic_folder, write_definition

QUARANTINED = "quarantined.json"


def fork_definition(topic: Topic, id_: int, name: str) -> Topic:
    return replace(topic, id=id_, spec=replace(topic.spec, name=name), forked_from=topic.id)


def link_partitions(folder: Path, original: TopicState, fork: Topic) -> list[list[int]]:
    """Make the fork's folder, with everything that is in sealed segments of the original; what is in the active ones
    must have been sealed. Returns the partitions' states. Everything is synced: the journal comes next."""
    home = topic_folder(folder, fork.name)
    make_folder(home)
    states = []
    for number, state in enumerate(original.partitions):
        target = home / str(number)
        target.mkdir(exist_ok=True)
        source = topic_folder(folder, original.topic.name) / str(number)
        states.append(_link_partition(source, target, state, fork, number))
        sync_folder(target)
    sync_folder(home)
    write_definition(folder, fork)
    return states


def _link_partition(source: Path, target: Path, state: PartitionState, fork: Topic, number: int) -> list[int]:
    for left in target.iterdir():
        left.unlink()  # of an attempt that was cut short
    if not state.position:
        return [state.start, state.end, 0, 0]
    for base in list_segments(source):
        if base < state.segment:
            os.link(segment_path(source, base), segment_path(target, base))
            if index_path(source, base).exists():
                os.link(index_path(source, base), index_path(target, base))
    if (source / QUARANTINED).exists():
        os.link(source / QUARANTINED, target / QUARANTINED)
    descriptor = os.open(segment_path(target, state.end), os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        write_all(descriptor, [encode_segment_header(fork.id, number, state.end, 0)], 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    return [state.start, state.end, state.end, HEADER_SIZE]
