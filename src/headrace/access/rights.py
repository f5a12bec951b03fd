"""Roles, and who asks: the identity behind a request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["read", "write", "admin"]
RANK: dict[str, int] = {"read": 1, "write": 2, "admin": 3}


@dataclass(frozen=True, slots=True)
class Identity:
    """Who sent a request, and what they may do."""

    role: Role
    name: str = ""
    """Of the key; empty for one without a name."""
    uid: int | None = None
    """The user of this machine, where the kernel told."""

    def may(self, needed: Role) -> bool:
        return RANK[self.role] >= RANK[needed]

    @property
    def title(self) -> str:
        """Who it is, for people.

        >>> Identity("admin", "release bot").title, Identity("admin", uid=1000).title, Identity("read").title
        ('release bot', 'uid 1000', 'somebody with the role read')
        """
        return self.name or (f"uid {self.uid}" if self.uid is not None else f"somebody with the role {self.role}")
