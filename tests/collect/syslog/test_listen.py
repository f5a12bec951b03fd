"""Syslog over real sockets into a real log."""

from __future__ import annotations

import logging
import logging.handlers
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import pytest

from tests.collect.listeners import SYSLOG, listening
from tests.support import free_port, wait_for


def collector(port: int, *more: str) -> str:
    places = ", ".join(f'"{transport}://127.0.0.1:{port}"' for transport in ("udp", "tcp"))
    return "\n".join(['type = "syslog"', 'topic = "logs"', f"listen = [{places}]", *more])


def test_lines_counts_and_datagrams_become_rows_and_bad_ones_letters(tmp_path: Path) -> None:
    port = free_port()
    with listening(tmp_path, {"devices": collector(port)}, [SYSLOG]) as running:
        running.wait_until("devices")
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"<34>Oct 11 22:14:15 web su[7]: one\nnonsense\n<13>1 - db pg - - [a b=")
            connection.sendall(b'"c"] two\n')
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"18 <13>three\nand more13 <13>1 - h a")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"<14>five", ("127.0.0.1", port))
        rows = {row["MESSAGE"]: row for row in running.wait_rows("logs", 4)}
        assert set(rows) == {"one", "two", "three\nand more", "five"}
        assert (rows["one"]["HOST"], rows["one"]["PROCID"], rows["five"]["HOST"]) == ("web", "7", "127.0.0.1")
        assert rows["two"]["STRUCTURED_DATA"] == '{"a":{"b":"c"}}'
        wait_for(lambda: len(running.letters()) == 2, 10, "two dead letters")
        assert {letter["PAYLOAD"] for letter in running.letters()} == {b"nonsense", b"13 <13>1 - h a"}
        # Counted after it is written.
        wait_for(lambda: running.status("devices").received == 6, 10, "all to be counted")
        status = running.status("devices")
        assert (status.accepted, status.rejected, status.shed) == (4, 2, 0)


def test_empty_datagrams_are_counted_however_many_come_at_once(tmp_path: Path) -> None:
    port = free_port()
    with listening(tmp_path, {"devices": collector(port)}, [SYSLOG]) as running:
        running.wait_until("devices")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            for datagram in (b"", b"", b"<14>one", b""):
                sender.sendto(datagram, ("127.0.0.1", port))
        running.wait_rows("logs", 1)
        wait_for(lambda: running.status("devices").received == 4, 10, "all of them to be counted")
        assert running.status("devices").rejected == 3


def test_real_clients(tmp_path: Path) -> None:
    """Python's SysLogHandler and util-linux's logger."""
    port = free_port()
    with listening(tmp_path, {"devices": collector(port)}, [SYSLOG]) as running:
        running.wait_until("devices")
        for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
            handler = logging.handlers.SysLogHandler(("127.0.0.1", port), facility="local3", socktype=kind)
            handler.ident = "shop: "
            record = logging.LogRecord("x", logging.ERROR, "f.py", 1, "order %d failed", (int(kind),), None)
            handler.emit(record)
            handler.close()
        logger = shutil.which("logger")
        assert logger is not None, "util-linux's logger (Debian: bsdutils) is part of every system"
        for flags in (["--udp"], ["--tcp"], ["--tcp", "--rfc3164"], ["--tcp", "--octet-count"]):
            command = [logger, "--server", "127.0.0.1", "--port", str(port), "-t", "tool", "-p", "auth.warning"]
            subprocess.run([*command, *flags, "with " + " ".join(flags)], check=True, timeout=120)
        rows = {row["MESSAGE"]: row for row in running.wait_rows("logs", 6)}
        for message in ("order 1 failed", "order 2 failed"):
            assert [rows[message][name] for name in ("FACILITY", "SEVERITY", "APP")] == ["local3", "err", "shop"]
        for message in ("with --udp", "with --tcp", "with --tcp --rfc3164", "with --tcp --octet-count"):
            assert [rows[message][name] for name in ("FACILITY", "SEVERITY", "APP")] == ["auth", "warning", "tool"]
        assert not running.letters()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    file = tmp_path / "here.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run([*command, *names, "-keyout", file, "-out", tmp_path / "cert.pem"], check=True, capture_output=True)
    return file


def test_tls_with_and_without_a_certificate_of_the_client(tmp_path: Path, certificate: Path) -> None:
    port = free_port()
    text = "\n".join(
        [
            'type = "syslog"\ntopic = "logs"',
            f'listen = ["tls://127.0.0.1:{port}"]',
            'tls_cert = "cert.pem"\ntls_key = "here.pem"\ntls_client_ca = "cert.pem"',
        ]
    )
    with listening(tmp_path, {"devices": text}, [SYSLOG]) as running:
        running.wait_until("devices")
        for known in (True, False):
            context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
            if known:
                context.load_cert_chain(tmp_path / "cert.pem", certificate)
            try:
                with (
                    socket.create_connection(("127.0.0.1", port), timeout=120) as plain,
                    context.wrap_socket(plain, server_hostname="localhost") as secured,
                ):
                    secured.sendall(b"<13>known %d\n" % known)
                    if not known:
                        secured.recv(1)
            except (ssl.SSLError, ConnectionError):
                assert not known
        assert [row["MESSAGE"] for row in running.wait_rows("logs", 1)] == ["known 1"]


def test_a_changed_file_starts_its_collector_anew_and_a_broken_one_does_not(tmp_path: Path) -> None:
    first, second = free_port(), free_port()

    def send(port: int) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                connection.sendall(b"<13>to %d\n" % port)
            return True
        except ConnectionError:
            return False

    with listening(tmp_path, {"devices": collector(first)}, [SYSLOG]) as running:
        running.wait_until("devices")
        assert send(first)
        running.wait_rows("logs", 1)
        running.write("devices", collector(second))
        wait_for(lambda: send(second), 10, "the new port")
        assert not send(first)
        running.wait_rows("logs", 2)
        running.write("devices", "type = ")
        running.write("other", collector(first))
        wait_for(lambda: send(first), 10, "the other collector")
        assert send(second)
        running.wait_rows("logs", 4)
        wait_for(lambda: running.status("devices").accepted == 3, 10, "all to be counted")


def test_without_its_topic_it_waits_and_with_a_port_in_use_it_has_failed_and_says_so(tmp_path: Path) -> None:
    port = free_port()
    with socket.socket() as taken, listening(tmp_path, {"devices": collector(port)}, []) as running:
        wait_for(lambda: "waiting for topic `logs`" in running.status("devices").detail, 10, "it to wait")
        status = running.status("devices")
        assert (status.state, status.errors) == ("waiting", 0)
        assert "headrace topic create logs" in status.detail
        taken.bind(("127.0.0.1", port))
        taken.listen()
        running.log.create_topic(SYSLOG)
        wait_for(lambda: "in use" in running.status("devices").detail, 10, "the port to be in use")
        taken.close()
        running.wait_until("devices")


def test_whoever_is_not_allowed_is_counted(tmp_path: Path) -> None:
    port = free_port()
    with listening(tmp_path, {"devices": collector(port, 'allow = ["10.0.0.0/8"]')}, [SYSLOG]) as running:
        running.wait_until("devices")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
            sender.sendto(b"<14>five", ("127.0.0.1", port))
        wait_for(lambda: running.status("devices").shed == 1, 10, "the datagram to be counted")
        with socket.create_connection(("127.0.0.1", port)) as connection:
            try:
                connection.sendall(b"<13>one\n")
                assert connection.recv(1) == b""
            except ConnectionError:
                pass
        wait_for(lambda: running.status("devices").errors == 1, 10, "the connection to be counted")
