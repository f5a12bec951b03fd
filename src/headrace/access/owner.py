"""The owner's key: made with the project, kept in its data folder for its user alone, good for everything.

The commands and the project's own processes send it, so that they work wherever the kernel does not tell who is at
the other end, and where `[auth] keys` holds hashes only."""

from __future__ import annotations

import base64

from headrace.access.keys import read_keys
from headrace.access.rights import RANK
from headrace.access.secrets import project_secret, read_secret
from headrace.config import Project
from headrace.errors import HeadraceError

NAME = "owner"


def make_owner_key(project: Project) -> str:
    """Return the key, made if there is none yet."""
    return _text(project_secret(project, NAME))


def find_owner_key(project: Project) -> str | None:
    """Return the key if there is one that this user may read."""
    try:
        return _text(read_secret(project, NAME))
    except OSError:
        return None


def own_key(project: Project) -> str | None:
    """Return a key that may do everything, as far as this user can know one: the owner's, or the strongest that
    headrace.toml tells."""
    found = find_owner_key(project)
    if found is not None:
        return found
    try:
        keys = read_keys(project.settings.auth.keys, project.folder).keys
    except HeadraceError:
        return None
    known = [key for key in keys if key.text is not None]
    told = sorted(known, key=lambda key: (key.identity.scope is not None, -RANK[key.identity.role]))
    return told[0].text if told else None


def _text(secret: bytes) -> str:
    return "hr_" + base64.urlsafe_b64encode(secret).decode().rstrip("=")
