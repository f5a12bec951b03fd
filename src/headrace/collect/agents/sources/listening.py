"""Sources that others connect to over TCP: a thread for each connection."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence

from headrace.collect.agents.base import AgentError, Counters, ListeningSource, Put
from headrace.collect.agents.options import Option, Options
from headrace.collect.listening.settings import Admission, is_loopback, networks, open_to_all
from headrace.errors import ConfigError

logger = logging.getLogger("headrace.agent")

MAX_CONNECTIONS = 500
_PAUSE_S = 0.1
IDLE_S = 600.0
"""A connection on which nothing comes for so long is closed: half-open ones must not gather."""
HERE = "127.0.0.1"
"""Where a source listens that is not told: Flume's own default would let in whoever reaches the machine."""
ALLOW = Option(
    "allow",
    "words",
    (),
    "Networks that may send, such as `10.0.0.0/8`; needed where it listens beyond this machine. Others are counted.",
)


def check_listening(options: Options) -> Iterator[tuple[str, str, str | None]]:
    """Find an address that anybody could reach, and networks that are none."""
    name = "bind" if "bind" in options else "host"
    try:
        networks(options.words(ALLOW.name))
    except ConfigError as error:
        yield ALLOW.name, error.message, error.hint
    if not options.words(ALLOW.name) and not is_loopback(options.text(name)):
        hint = "say who may:  allow = 10.0.0.0/8, or everybody:  allow = 0.0.0.0/0 ::/0"
        yield name, open_to_all(options.text(name)), hint


def listen(host: str, port: int, kind: socket.SocketKind = socket.SOCK_STREAM) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        found = socket.socket(family, kind)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        if kind == socket.SOCK_STREAM:
            found.listen(128)
    except OSError as error:
        raise AgentError(
            f"cannot listen on `{host}:{port}`: {(error.strerror or str(error)).lower()}", hint="choose another port"
        ) from None
    return found


class TcpServer:
    """`handle` works on one connection until it returns; errors of the connection end it and nothing else."""

    def __init__(
        self,
        host: str,
        port: int,
        handle: Callable[[socket.socket], None],
        counters: Counters,
        allow: Sequence[str] = (),
    ) -> None:
        self._handle, self._counters, self._admits = handle, counters, Admission(allow)
        self._listening = listen(host, port)
        self.port: int = self._listening.getsockname()[1]
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        self._stopping = False
        self._pause = threading.Event()
        self._thread = threading.Thread(target=self._accept, name=f"agent-port-{self.port}", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while not self._stopping:
            try:
                connection, address = self._listening.accept()
            except OSError as error:
                # Whoever gave up while waiting, or no file left to open: the next may have more luck.
                if not self._stopping:
                    self._counters.failed("ConnectionFailedCount", error)
                    self._pause.wait(_PAUSE_S)
                continue
            if not self._admits(address[0]):
                self._counters.add("ConnectionRefusedCount")
                connection.close()
                continue
            with self._lock:
                full = len(self._connections) >= MAX_CONNECTIONS or self._stopping
                if not full:
                    thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                    self._connections[connection] = thread
            if full:
                self._counters.add("ConnectionRefusedCount")
                connection.close()
                continue
            try:
                thread.start()
            except RuntimeError as error:
                # No thread is to be had.
                self._counters.failed("ConnectionRefusedCount", error)
                connection.close()
                with self._lock:
                    self._connections.pop(connection, None)

    def _serve(self, connection: socket.socket) -> None:
        self._counters.add("OpenConnectionCount")
        try:
            connection.settimeout(IDLE_S)
            self._handle(connection)
        except (OSError, ValueError) as error:
            logger.debug("connection ended: %s", error)
        except Exception as error:
            self._counters.failed("GenericProcessingFail", error)
            logger.warning("connection ended: %s", error)
        finally:
            connection.close()
            self._counters.add("OpenConnectionCount", -1)
            with self._lock:
                self._connections.pop(connection, None)

    def stop(self) -> None:
        self._stopping = True
        self._pause.set()
        # Closing alone does not wake who waits in `accept`.
        with contextlib.suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            left = list(self._connections.items())
        for connection, _ in left:
            # Nothing more comes in; what is being answered is answered.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        for _, thread in left:
            thread.join(5)
        self._thread.join(5)


class TcpSource(ListeningSource):
    """Says what is done with a connection; the rest is the same for all."""

    def __init__(self, host: str, port: int, counters: Counters, allow: Sequence[str] = ()) -> None:
        self._host, self._port, self._counters, self._allow = host, port, counters, allow
        self._server: TcpServer | None = None

    @property
    def port(self) -> int:
        return self._server.port if self._server else self._port

    def start(self, put: Put) -> None:
        self._server = TcpServer(
            self._host,
            self._port,
            lambda connection: self._serve(connection, put),
            self._counters,
            self._allow,
        )

    @abstractmethod
    def _serve(self, connection: socket.socket, put: Put) -> None:
        """Work on it until nothing more comes."""

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


class LineReader:
    """Lines as they come, many at once. One that is too long is cut, and its rest left out and counted."""

    def __init__(self, connection: socket.socket, longest: int) -> None:
        self._connection, self._longest = connection, longest
        self._buffer = b""
        self._skipping = False
        self.cut = 0

    def read(self) -> list[bytes] | None:
        """None at the end; what is not ended by a newline then is a line, too."""
        while True:
            data = self._connection.recv(256 * 1024)
            if not data:
                rest, self._buffer = self._buffer, b""
                return [rest] if rest and not self._skipping else None
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            if self._skipping and lines:
                lines, self._skipping = lines[1:], False
            if self._skipping:
                self._buffer = b""
            elif len(self._buffer) > self._longest:
                lines.append(self._buffer)
                self._buffer, self._skipping = b"", True
            if lines:
                return [self._trimmed(line) for line in lines]

    def _trimmed(self, line: bytes) -> bytes:
        if len(line) > self._longest:
            self.cut += 1
            line = line[: self._longest]
        return line[:-1] if line.endswith(b"\r") else line
