"""Roles and scopes, and who asks: the identity behind a request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from headrace.patterns import Regex, compile_pattern, translate_wildcard

Role = Literal["read", "write", "admin"]
RANK: dict[str, int] = {"read": 1, "write": 2, "admin": 3}


@dataclass(frozen=True, slots=True)
class Resource:
    """What a request reads or writes."""

    kind: Literal["topic", "view"]
    name: str


@dataclass(frozen=True)
class Scope:
    """The topics and views that a key is limited to, as names and wildcards."""

    topics: tuple[str, ...] = ()
    views: tuple[str, ...] = ()

    def covers(self, resource: Resource) -> bool:
        """Return whether a name matches. Headrace's own topics never do; names of views match in any case, as they do
        in addresses.

        >>> scope = Scope(("web-*", "*"), ("top_*",))
        >>> [scope.covers(Resource("topic", name)) for name in ("web-eu", "_audit")]
        [True, False]
        >>> [scope.covers(Resource("view", name)) for name in ("TOP_PAGES", "USERS")]
        [True, False]
        """
        if resource.kind == "view":
            name = resource.name.casefold()
            return any(pattern.fullmatch(name) for pattern in self._views)
        return not resource.name.startswith("_") and any(pattern.fullmatch(resource.name) for pattern in self._topics)

    @cached_property
    def _topics(self) -> list[Regex]:
        return _compile(self.topics)

    @cached_property
    def _views(self) -> list[Regex]:
        return _compile(name.casefold() for name in self.views)


def _compile(wildcards: Iterable[str]) -> list[Regex]:
    # A line break is a character like others in a quoted name.
    return [compile_pattern("(?s)" + translate_wildcard(wildcard)) for wildcard in wildcards]


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sent a request, and what they may do."""

    role: Role
    name: str = ""
    """Of the key; empty for one without a name."""
    uid: int | None = None
    """The user of this machine, where the kernel told."""

    scope: Scope | None = None
    """What a key is limited to; None for one that is not."""

    def may(self, needed: Role, resource: Resource | None = None) -> bool:
        """Return whether this identity may read or write a topic or view, or, without one, do what is not about a
        single one: then a key with scopes may not."""
        if RANK[self.role] < RANK[needed]:
            return False
        return self.scope is None or (resource is not None and self.scope.covers(resource))

    @property
    def title(self) -> str:
        """Who it is, for people.

        >>> Identity("admin", "release bot").title, Identity("admin", uid=1000).title, Identity("read").title
        ('release bot', 'uid 1000', 'somebody with the role read')
        """
        return self.name or (f"uid {self.uid}" if self.uid is not None else f"somebody with the role {self.role}")
