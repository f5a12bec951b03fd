"""The publisher's position in a public topic is kept as the identity of its last batch, so rows and position are one
commit (contract 7)."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
import pyarrow as pa

from headrace.coordinate.catalog import Catalog
from headrace.coordinate.how_far import ends_of
from headrace.coordinate.topics import find_topic
from headrace.log.base import PUBLISHER_PREFIX, BatchIdentity, Log, Route, Topic
from headrace.log.copy.moves import Moves
from headrace.log.schema import frame_schema
from headrace.structs import ready
from headrace.views.public import public_topic
from headrace.views.switch_rows import written_columns


class Published(msgspec.Struct, frozen=True):
    """The position up to which a version is in the public topic."""

    version: int
    offsets: dict[int, int]
    """By partition of the version's topic: the next record to publish."""


def read_published(log: Log, catalog: Catalog, name: str, topic: Topic) -> Published | None:
    """Return what is in the public topic of a name. Before the publisher has written to it, that is all of the version
    which wrote it itself; None if it was made for the publisher."""
    identity = log.last_identity(PUBLISHER_PREFIX + topic.name, topic.id)
    if identity is not None:
        return msgspec.json.decode(identity.offsets, type=ready(Published))
    for version in catalog.versions(name):
        made = find_topic(log, version.source.topic)
        if made is not None and made.forked_from == topic.id:
            return Published(version.number, dict(enumerate(made.fork_at or ends_of(log, topic.name))))
    return None


def commit_published(log: Log, topic: Topic, batches: Iterable[pa.RecordBatch], state: Published) -> None:
    """Append rows to the public topic; from then on it has what `state` says."""
    query = PUBLISHER_PREFIX + topic.name
    last = log.last_identity(query, topic.id)
    batch = 0 if last is None else last.batch + 1
    names = written_columns(frame_schema(topic.spec, topic.schemas[-1]))
    transaction = f"{query}-{topic.id}-{batch}"
    identity = BatchIdentity(query, topic.id, "publisher", batch, msgspec.json.encode(state).decode())
    try:
        log.stage(transaction, 0, 0, [Route(topic.name, {name: name for name in names})], iter(batches))
        log.commit(transaction, [(0, 0)], identity)
    except BaseException:
        log.abort(transaction)
        raise


def move_published(source: Log, target: Log, catalog: Catalog, moves: Moves) -> None:
    """Note in a copy of the log what its public topics have: whoever publishes there goes on, and repeats nothing."""
    for name in catalog.state.serving:
        serving = catalog.source(name)
        public = None if serving is None else public_topic(serving)
        if serving is None or serving.query is None or public is None or public == serving.topic:
            continue
        there, here = find_topic(source, public), find_topic(target, public)
        state = None if there is None else read_published(source, catalog, name, there)
        version = None if state is None else catalog.state.versions.get(name, {}).get(state.version)
        if here is None or state is None or version is None:
            continue
        moved = Published(state.version, moves.offsets(version.source.topic, state.offsets))
        if read_published(target, catalog, name, here) != moved:
            commit_published(target, here, (), moved)
