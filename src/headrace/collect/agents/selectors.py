"""From a source into its channels: all of them, or those that a header names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TypeAlias

from headrace.collect.agents.base import AgentError, Channel, Counters, Event
from headrace.collect.agents.interceptors import Intercept
from headrace.collect.agents.options import Option, Options

logger = logging.getLogger("headrace.agent")

Shares: TypeAlias = dict[str, list[Event]]
"""Channel → its events."""


@dataclass(frozen=True, slots=True)
class SelectorKind:
    names: tuple[str, ...]
    summary: str
    options: tuple[Option, ...]

    @property
    def name(self) -> str:
        return self.names[0]


SELECTORS = (
    SelectorKind(
        ("replicating", "org.apache.flume.channel.ReplicatingChannelSelector"),
        "Every event into every channel.",
        (Option("optional", "words", None, "Channels that may miss events when they are full."),),
    ),
    SelectorKind(
        ("multiplexing", "org.apache.flume.channel.MultiplexingChannelSelector"),
        "Each event into the channels that belong to a header's value.",
        (
            Option("header", "text", "flume.selector.header", "The header."),
            Option("mapping.*", "text", None, "Value → channels."),
            Option("optional.*", "text", None, "Value → channels that may miss events when they are full."),
            Option("default", "words", None, "Channels of all other values."),
        ),
    ),
)
BY_NAME = {name.lower(): kind for kind in SELECTORS for name in kind.names}


@dataclass(frozen=True, slots=True)
class Selector:
    """Which channels must have an event, and which may."""

    route: Callable[[Sequence[Event]], tuple[Shares, Shares]]


def replicating(channels: Sequence[str], options: Options) -> Selector:
    optional = [name for name in channels if name in options.words("optional")]
    required = [name for name in channels if name not in optional]

    def route(events: Sequence[Event]) -> tuple[Shares, Shares]:
        return {name: list(events) for name in required}, {name: list(events) for name in optional}

    return Selector(route)


def multiplexing(channels: Sequence[str], options: Options) -> Selector:
    header, default = options.text("header"), options.words("default")
    mapping = {value: names.replace(",", " ").split() for value, names in options.below("mapping.*").items()}
    optional = {value: names.replace(",", " ").split() for value, names in options.below("optional.*").items()}

    def route(events: Sequence[Event]) -> tuple[Shares, Shares]:
        needed: Shares = {}
        allowed: Shares = {}
        for event in events:
            value = event.headers.get(header, "")
            for name in mapping.get(value, default):
                needed.setdefault(name, []).append(event)
            for name in optional.get(value, ()):
                allowed.setdefault(name, []).append(event)
        return needed, allowed

    return Selector(route)


class ChannelProcessor:
    """The way from one source into its channels. Safe to use from several threads, as the channels are."""

    def __init__(
        self, channels: Mapping[str, Channel], selector: Selector, intercept: Intercept, counters: Counters
    ) -> None:
        self._channels, self._selector, self._intercept, self._counters = channels, selector, intercept, counters
        self._most = min((channel.transaction_capacity for channel in channels.values()), default=2**31)

    def __call__(self, events: Sequence[Event]) -> None:
        """All channels that must have them do, or `AgentError`. More than the channels take at once go in pieces; then
        the error's `taken` says how many of them went before it."""
        for first in range(0, len(events), self._most):
            self._put_or_halves(events[first : first + self._most], first)

    def _put_or_halves(self, events: Sequence[Event], before: int) -> None:
        """Together, or, where a channel never has room for so many bytes, in smaller pieces."""
        try:
            self._put(events)
        except AgentError as error:
            if not error.data.get("never") or len(events) == 1:
                error.data["taken"] = before
                raise
        else:
            return
        half = len(events) // 2
        self._put_or_halves(events[:half], before)
        self._put_or_halves(events[half:], before + half)

    def _put(self, events: Sequence[Event]) -> None:
        self._counters.add("EventReceivedCount", len(events))
        kept = self._intercept(events)
        required, optional = self._selector.route(kept)
        try:
            with ExitStack() as transactions:
                puts = [
                    (transactions.enter_context(self._channels[name].transaction()), share)
                    for name, share in required.items()
                    if share
                ]
                # Room in all of them first, so that one that is full keeps the others from getting it twice.
                for transaction, share in puts:
                    transaction.put(share)
        except AgentError as error:
            self._counters.failed("ChannelWriteFail", error)
            raise
        for name, share in optional.items():
            self._put_optional(name, share)
        self._counters.add("EventAcceptedCount", len(events))
        if len(kept) < len(events):
            self._counters.add("EventFilteredCount", len(events) - len(kept))
        if sum(map(len, required.values())) < len(kept):
            # A header's value that belongs to no channel, and no default: left out as in Flume, but not silently.
            routed = {id(event) for shares in (required, optional) for share in shares.values() for event in share}
            self._counters.add("EventUnroutedCount", sum(id(event) not in routed for event in kept))

    def _put_optional(self, name: str, events: Sequence[Event]) -> None:
        try:
            with self._channels[name].transaction() as transaction:
                transaction.put(events)
        except AgentError as error:
            self._counters.add("OptionalChannelMissedCount", len(events))
            self._counters.failed("OptionalChannelFail", error)
