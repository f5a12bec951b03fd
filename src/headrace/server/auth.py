"""Who may do what: keys with roles; and without keys, the user of this machine who runs the server.

A request without a key is trusted only if nothing speaks against it: its connection was opened on this machine by the
server's own user, nobody has forwarded it, and no page of another site has sent it.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ipaddress
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.types import Scope

from headrace.access.keys import FROM_FILE, HeldKey, KeyRing, key_digest, read_keys
from headrace.access.limits import AddressLimit
from headrace.access.peers import Peers, own_uid
from headrace.access.rights import RANK, Identity, Resource, Role
from headrace.clock import Clock, SystemClock
from headrace.config import PROJECT_FILE, Key, Project, load_project
from headrace.errors import HeadraceError, NotFound, Overloaded, Refused, Unauthenticated, UnsupportedMedia
from headrace.server.audit import IDENTITY, ROLE
from headrace.toml_files import Stamp, stamp_files

OWNER = Identity("admin", "owner")
HINT = "send a key as `Authorization: Bearer KEY`; `headrace key owner` prints the owner's"
LOOK_S = 1.0
LIMITED_HINT = "its `topics` and `views` are in headrace.toml, [[auth.keys]]"
_MEMO = "headrace.local"

Touched = Callable[[HTTPConnection], Iterable[Resource | None]]
"""Finds what a request reads or writes. None is what is not one topic or view."""

logger = logging.getLogger("headrace.server")


class Auth:
    """Checks requests. Safe to use from several threads."""

    def __init__(self, project: Project, owner: str | None = None, clock: Clock | None = None) -> None:
        self._folder, self._named = project.folder, _named_files(project.folder, project.settings.auth.keys)
        self._stamp, self._problem = self._now(), ""
        self._ring = read_keys(project.settings.auth.keys, project.folder)
        self._wrong = AddressLimit(clock or SystemClock())
        self._owner = KeyRing([HeldKey(key_digest(owner), OWNER, owner)] if owner else [])
        self._peers, self._uid = Peers(), own_uid()

    @property
    def keys_set(self) -> bool:
        return bool(self._ring)

    @property
    def key_count(self) -> int:
        return len(self._ring.keys)

    @property
    def signing_keys(self) -> list[HeldKey]:
        """Those that a signature can be checked with."""
        return [key for key in (*self._ring.keys, *self._owner.keys) if key.text is not None]

    def check(self, connection: HTTPConnection, needed: Role | None, touched: Touched | None = None) -> None:
        """`Unauthenticated` or `Refused` unless the connection may. None is for what anybody may.

        A key with scopes may only what `touched` finds; without it, nothing."""
        if needed is None:
            return
        identity = self.identify(connection, needed)
        connection.scope[IDENTITY] = identity
        if RANK[identity.role] < RANK[needed]:
            raise Refused(refusal_of(identity, needed, None))
        if identity.scope is not None:
            self.check_each(connection, needed, (None,) if touched is None else touched(connection))
        if RANK[needed] >= RANK.get(connection.scope.get(ROLE, ""), 0):
            connection.scope[ROLE] = needed

    def check_each(self, connection: HTTPConnection, needed: Role, resources: Iterable[Resource | None]) -> None:
        """`Refused` unless who was checked before may use all of these."""
        identity: Identity = connection.scope[IDENTITY]
        for resource in resources if self.is_limited(connection) else ():
            if not identity.may(needed, resource):
                raise Refused(refusal_of(identity, needed, resource), hint=LIMITED_HINT)

    def is_limited(self, connection: HTTPConnection) -> bool:
        """Return whether who was checked before has scopes."""
        identity: Identity = connection.scope[IDENTITY]
        return identity.scope is not None

    def allows(self, connection: HTTPConnection, resource: Resource) -> bool:
        """Return whether who was checked before may read it: for lists."""
        identity: Identity = connection.scope[IDENTITY]
        return identity.may("read", resource)

    def identify(self, connection: HTTPConnection, needed: Role) -> Identity:
        """Return who asks: by the key that is sent, or else, where no keys are set, as this machine's user."""
        given = _key_of(connection, needed)
        found = None if given is None else self._ring.find(given) or self._owner.find(given)
        if found is not None:
            return found
        if not self._ring:
            return self.identify_local(connection)
        # A right key is never counted, nor kept waiting: one client with an old key must not shut out the others of its
        # address.
        if given is not None and (wait := self._wrong.add(connection.client.host if connection.client else "")):
            raise Overloaded("too many wrong keys came from this address", retry_after=wait)
        raise Unauthenticated(
            "this needs a key" if given is None else "nobody has this key",
            hint="send it as `Authorization: Bearer KEY`; keys are in headrace.toml, [auth] keys",
        )

    def identify_local(self, connection: HTTPConnection) -> Identity:
        """Return the server's own user. `Refused` or `Unauthenticated` if it may be somebody else."""
        scope = connection.scope
        known: Identity | None = scope.get(_MEMO)
        if known is None:
            check_local(scope)
            known = scope[_MEMO] = self._identify_peer(scope)
        return known

    def caller(self, connection: HTTPConnection, claimed: str) -> str:
        """Who it is, to be written down: by the key, where there are keys; otherwise whoever it claims to be."""
        given = _key_of(connection, "admin")
        found = None if given is None else self._ring.find(given)
        return claimed if found is None else found.title

    def look(self) -> bool:
        """Read the keys again if headrace.toml, or a file that it names, has changed. True if so; keys that cannot be
        read leave those from before in force."""
        try:
            keys = load_project(self._folder).settings.auth.keys if self._stamp != self._now() else None
            if keys is None:
                return False
            named = _named_files(self._folder, keys)
            stamp = stamp_files([self._folder / PROJECT_FILE, *named])
            ring = read_keys(keys, self._folder)
        except (HeadraceError, OSError) as error:
            if str(error) != self._problem:
                self._problem = str(error)
                logger.warning("the keys are as they were: %s", error)
            return False
        if ring.digests != self._ring.digests:
            logger.info("keys were read again: %d now, %d before", len(ring.keys), len(self._ring.keys))
        self._ring, self._stamp, self._problem, self._named = ring, stamp, "", named
        return True

    async def run(self) -> None:
        """Look for changes until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await asyncio.to_thread(self.look)
            except Exception:
                # Nobody would begin it again.
                logger.exception("the keys cannot be read")

    def _now(self) -> Stamp:
        return stamp_files([self._folder / PROJECT_FILE, *self._named])

    def close(self) -> None:
        self._peers.close()

    def _identify_peer(self, scope: Scope) -> Identity:
        client, server = scope.get("client"), scope.get("server")
        uid = None
        if client and server and client[1] and server[1]:
            uid = self._peers.uid((client[0], int(client[1])), (server[0], int(server[1])))
        if uid is None:
            raise Unauthenticated("the system does not tell whose connection this is, so it needs a key", hint=HINT)
        if uid != self._uid:
            raise Unauthenticated("another user of this machine needs a key", hint=HINT)
        return Identity("admin", uid=uid)


def refusal_of(identity: Identity, needed: Role, resource: Resource | None) -> str:
    """
    >>> refusal_of(Identity("read", "shop"), "read", Resource("topic", "payments"))
    'the key `shop` may not read the topic `payments`'
    """
    if RANK[identity.role] < RANK[needed]:
        return f"this needs the role `{needed}`, the key has `{identity.role}`"
    who = f"the key `{identity.name}`" if identity.name else "this key"
    if resource is None:
        return f"{who} is limited to some topics and views, and this needs more"
    return f"{who} may not {needed} the {resource.kind} `{resource.name[:100]}`"


def hide_names(connection: HTTPConnection, error: Exception) -> Exception:
    """Take the names of what else there is out of an error, if its reader is limited to some."""
    identity: Identity | None = connection.scope.get(IDENTITY)
    if isinstance(error, NotFound) and identity is not None and identity.scope is not None:
        error.detail = error.hint = None
    return error


def _named_files(folder: Path, keys: Sequence[Key]) -> list[Path]:
    return [folder / key.key.removeprefix(FROM_FILE) for key in keys if key.key.startswith(FROM_FILE)]


def check_local(scope: Scope) -> None:
    """`Refused` or `Unauthenticated` if the headers say that a request is not its user's own: sent by a page of
    another site or port (`Origin`, `Sec-Fetch-Site`), to a name that is not this machine's (`Host`), or through a
    proxy."""
    host, origin, site = "", None, ""
    for name, value in scope["headers"]:
        if name == b"host":
            host = value.decode("latin-1")
        elif name == b"origin":
            origin = value.decode("latin-1")
        elif name == b"sec-fetch-site":
            site = value.decode("latin-1")
        elif name.startswith(b"x-forwarded") or name in (b"forwarded", b"x-real-ip"):
            raise Unauthenticated("a request that was forwarded needs a key", hint=HINT)
    if not host:
        raise Unauthenticated("a request without `Host` needs a key", hint=HINT)
    if not is_loopback(_hostname(f"//{host}")):
        raise Refused(f"`{host}` is not this machine", hint="set [auth] keys to be reached under other names")
    if origin is not None and not is_own_origin(origin, scope["scheme"], host):
        raise Refused(f"pages of `{origin}` may not use this server", hint="set [auth] keys to allow other sites")
    if site not in ("", "none", "same-origin"):
        raise Refused("pages of other sites may not use this server", hint="set [auth] keys to allow other sites")


def is_own_origin(origin: str, scheme: str, host: str) -> bool:
    """Return whether a page comes from the very server that it talks to.

    >>> is_own_origin("http://localhost:8080", "http", "localhost:8080")
    True
    >>> is_own_origin("http://localhost:5173", "http", "localhost:8080")
    False
    """
    return origin.lower() == f"{'https' if scheme in ('https', 'wss') else 'http'}://{host}".lower()


def require_json(connection: HTTPConnection) -> None:
    """`UnsupportedMedia` unless the body is JSON and says so: what a page of another site can send without asking
    first never does."""
    headers = connection.headers
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json")):
        return
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return
    raise UnsupportedMedia(
        f"the body must be `application/json`, not `{kind or 'without a type'}`",
        hint="with curl:  --json '{…}'  or  -H 'Content-Type: application/json'",
    )


def _key_of(connection: HTTPConnection, needed: Role) -> str | None:
    scheme, _, key = connection.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    if scheme.lower() == "basic":
        return _basic_key(key)
    # A browser's EventSource and WebSocket cannot set headers. Addresses end up in logs, so it is for reading only.
    if needed == "read" and (connection.scope["type"] == "websocket" or connection.scope["method"] == "GET"):
        return connection.query_params.get("key")
    return None


def _basic_key(credentials: str) -> str | None:
    """The password of basic authentication, which is what clients of Kafka's world can send; the user is of no
    consequence."""
    return _basic(credentials)[1] or None


def basic_user(credentials: str) -> str | None:
    """The user, or the password where that is empty: clients of trackers send their write key as the user."""
    user, password = _basic(credentials)
    return user or password or None


def _basic(credentials: str) -> tuple[str, str]:
    try:
        text = base64.b64decode(credentials.strip(), validate=True).decode()
    except (binascii.Error, ValueError):
        return "", ""
    user, _, password = text.partition(":")
    return user, password


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("example.org")
    (True, True, False)
    """
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
