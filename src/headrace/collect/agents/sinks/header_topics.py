"""Topics that events ask for in a header. Whoever sends events may name any: so names are checked, and headers make
only so many topics, however often the agent is started anew."""

from __future__ import annotations

import json
from pathlib import Path

from headrace.collect.agents.options import Context, Option
from headrace.collect.agents.ports import LogWriter
from headrace.collect.agents.texts import readable
from headrace.errors import Conflict, NotFound, Refused, Unauthenticated, UsageError
from headrace.log.schema import is_topic_name

OPTION = Option("maxHeaderTopics", "integer", 100, "Topics that headers may make, in all; 0 is none.", least=0)
SHOWN = 100
"""Characters of a name that are repeated in a reason."""


class HeaderTopics:
    """Those that headers have made. `file` remembers them."""

    def __init__(self, file: Path, most: int) -> None:
        self._file, self._most = file, most
        self._made: set[str] | None = None

    def _load(self) -> set[str]:
        if self._made is None:
            try:
                self._made = set(json.loads(self._file.read_text(encoding="ascii")))
            except FileNotFoundError:
                self._made = set()
        return self._made

    def check_room(self) -> None:
        """`Refused` if headers have made as many as they may."""
        if len(self._load()) >= self._most:
            raise Refused(f"there is no such topic, and headers may make {self._most}", hint="see `maxHeaderTopics`")

    def add(self, topic: str) -> None:
        made = self._load() | {topic}
        self._file.parent.mkdir(parents=True, exist_ok=True)
        beside = self._file.with_suffix(".new")
        beside.write_text(json.dumps(sorted(made)), encoding="ascii")
        beside.replace(self._file)
        self._made = made


def header_topics(context: Context) -> HeaderTopics:
    file = context.ports.home(context.agent) / f"topics-{context.agent}-{context.name}.json"
    return HeaderTopics(file, context.options.integer("maxHeaderTopics"))


def why_not(writer: LogWriter, topic: str, topics: HeaderTopics) -> str | None:
    """Why events can never go to the topic that a header names; None if they can. Made if it may be."""
    if not is_topic_name(topic):
        return "that is not a topic name"
    try:
        try:
            writer.open_topic(topic, make=False)
        except NotFound:
            topics.check_room()
            writer.open_topic(topic, make=True)
            topics.add(topic)
    except Unauthenticated:
        raise
    except (UsageError, Refused, Conflict) as error:
        return error.message
    return None


def refusal(header: str, topic: str, why: str) -> str:
    """What a dead letter, or a counter, says."""
    name = readable(topic)
    return f"header `{header}` asks for topic `{name[:SHOWN]}{'…' if len(name) > SHOWN else ''}`: {why[:500]}"
