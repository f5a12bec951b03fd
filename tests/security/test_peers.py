"""The user at the other end of a connection, as the kernel tells."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.access.peers import Peers
from tests.security.users import NOBODY, acting_as, as_root


@contextmanager
def connected(host: str) -> Iterator[tuple[socket.socket, socket.socket]]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as listener,
        socket.create_connection(listener.getsockname()[:2]) as client,
    ):
        accepted, _ = listener.accept()
        with accepted:
            yield client, accepted


def ask(client: socket.socket, server: socket.socket) -> int | None:
    peers = Peers()
    try:
        return peers.uid(server.getpeername()[:2], server.getsockname()[:2])
    finally:
        peers.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.7", "::1"])
def test_the_own_user_is_found(host: str) -> None:
    with connected(host) as (client, server):
        assert ask(client, server) == os.geteuid()
        client.shutdown(socket.SHUT_WR)
        assert ask(client, server) == os.geteuid(), "a client that has said everything still waits for its answer"


@as_root
def test_another_user_is_found() -> None:
    with acting_as(NOBODY), connected("127.0.0.1") as (client, server):
        assert ask(client, server) == NOBODY


def test_a_connection_that_its_client_closed_is_nobodys() -> None:
    """The kernel reports such sockets as root's."""
    with connected("127.0.0.1") as (client, server):
        place = server.getpeername(), server.getsockname()
        client.close()
        peers = Peers()
        assert peers.uid(*place) is None
        peers.close()


def test_who_listens_on_a_port_is_not_who_connects_from_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        peers = Peers()
        assert peers.uid(listener.getsockname(), ("127.0.0.1", 9)) is None
        peers.close()


def test_addresses_of_elsewhere_have_no_user_here() -> None:
    peers = Peers()
    for client, server in (("10.0.0.1", "127.0.0.1"), ("127.0.0.1", "0.0.0.0"), ("nonsense", "127.0.0.1")):
        assert peers.uid((client, 1000), (server, 2000)) is None
    peers.close()
