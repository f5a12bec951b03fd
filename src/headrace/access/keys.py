"""Keys of `[auth] keys`: as text, by reference, or as hashes."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headrace.access.rights import RANK, Identity, Scope
from headrace.config import Key
from headrace.errors import ConfigError
from headrace.toml_files import secret

HASHED, FROM_FILE = "sha256:", "file:"
LEAST = 16
"""Characters of a key. Shorter ones can be guessed."""
HINT = "make one:  headrace key new"


@dataclass(frozen=True, slots=True)
class HeldKey:
    digest: bytes
    identity: Identity
    text: str | None = None
    """None of one that is written as a hash: then it can be checked, but nothing can be signed with it."""


class KeyRing:
    """The keys at one moment."""

    def __init__(self, keys: Sequence[HeldKey]) -> None:
        self.keys = tuple(keys)
        # By digest: whoever guesses does not know the digest of what they guess at, so the time to find it tells
        # nothing.
        self._by_digest = {key.digest: key for key in keys}

    @property
    def digests(self) -> frozenset[bytes]:
        return frozenset(self._by_digest)

    def __bool__(self) -> bool:
        return bool(self.keys)

    def find(self, text: str) -> Identity | None:
        digest = key_digest(text)
        found = self._by_digest.get(digest)
        return found.identity if found is not None and hmac.compare_digest(found.digest, digest) else None


def read_keys(keys: Sequence[Key], folder: Path) -> KeyRing:
    """Return the keys as they are checked. `ConfigError` if one cannot be used, with its number."""
    found = [_read(key, number, folder) for number, key in enumerate(keys, 1)]
    for number, key in enumerate(found, 1):
        if any(key.digest == other.digest for other in found[: number - 1]):
            raise ConfigError(f"key {number} of [auth] keys is there twice", hint=HINT)
    return KeyRing(found)


def make_key() -> str:
    return "hr_" + secrets.token_urlsafe(32)


def hash_key(text: str) -> str:
    """Return what `key =` may hold instead of the key.

    >>> hash_key("a long random text")
    'sha256:705e47d6b2bf7bc5a01b10590160c86cfddfa00f0360f6da7fd38dd956de039e'
    """
    return HASHED + key_digest(text).hex()


def key_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _read(key: Key, number: int, folder: Path) -> HeldKey:
    title = f"key {number} of [auth] keys" + (f" (`{key.name}`)" if key.name else "")
    if key.role not in RANK:
        raise ConfigError(f"`{key.role}` is not a role", hint="[auth] keys have the role read, write or admin")
    scoped = key.topics is not None or key.views is not None
    scope = Scope(tuple(key.topics or ()), tuple(key.views or ())) if scoped else None
    identity = Identity(key.role, key.name, scope=scope)  # type: ignore[arg-type]
    if key.key.startswith(HASHED):
        try:
            digest = bytes.fromhex(key.key.removeprefix(HASHED))
        except ValueError:
            digest = b""
        if len(digest) != 32:
            raise ConfigError(f"{title} is no hash: `sha256:` and 64 hexadecimal digits", hint=HINT)
        return HeldKey(digest, identity)
    text = _text(key.key, title, folder)
    if len(text) < LEAST:
        raise ConfigError(f"{title} has {len(text)} characters; {LEAST} is the least", hint=HINT)
    return HeldKey(key_digest(text), identity, text)


def _text(written: str, title: str, folder: Path) -> str:
    if not written.startswith(FROM_FILE):
        return secret(written)
    file = folder / written.removeprefix(FROM_FILE)
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{title} cannot be read from `{written}`: {error}") from error
