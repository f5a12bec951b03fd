"""The types of collectors there are. A room adds its own with one line; nothing of it is imported until it is used."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

Where = Literal["http", "listen", "pull"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    """What a file says as `type`."""
    summary: str
    """One line for `headrace collector kinds`, the console and the docs."""
    where: Where
    """`http`: routes of the server and of collector processes. `listen`: a socket of its own, `pull`: it is the client;
    both run in the process `headrace.server.listeners`."""
    settings: str
    """`module:Struct`, which extends `CollectorSettings`."""
    start: str = ""
    """`module:function` for `listen` and `pull`: `async def start(gate, project)` works until it is cancelled. When it
    raises, the collector has failed, and is started again after a pause."""
    sample: str = ""
    """`module:function` for "send a test event": `def sample(definition) -> Sent`, as this protocol makes them. Without
    it an event is made of the topic's columns."""
    example: str = ""
    """What to send, to be copied; `{url}`, `{topic}`, `{name}`, `{key}` and the settings' names are filled in."""
    keyed: bool = True
    """Whether it has `keys` of its own. Not so where something else says who may send."""
    page: str = ""
    """Its page in docs/howto, without the ending."""


def load(reference: str) -> Any:
    """What `module:name` names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


_KINDS = (
    Kind(
        name="http",
        summary="JSON events posted to /v1/topics/TOPIC/events, with rules",
        where="http",
        settings="headrace.collect.definitions:CollectorSettings",
        example="curl -d '{sample}' {url}/v1/topics/{topic}/events",
        keyed=False,
        page="collectors",
    ),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
