"""`headrace up`: one supervisor and its children. It starts server, engine and the collectors there are to be, restarts
what dies, stops all in order."""

from __future__ import annotations

import contextlib
import http.client
import ipaddress
import json
import os
import signal
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Literal

from headrace.access.owner import own_key
from headrace.access.tls import server_files, trust_own
from headrace.clock import Clock
from headrace.collect.listening.needed import listeners_needed
from headrace.config import MOST_WORKERS, Project
from headrace.coordinate.child import EXIT_STALLED, Child, sweep
from headrace.coordinate.local import Holder, UpLock
from headrace.coordinate.ports import choose_port, port_holder
from headrace.coordinate.reports import CHILDREN_FILE, ChildEnd, ChildReport, write_report
from headrace.coordinate.stopped import STOPPED_S
from headrace.errors import ConfigError, Conflict, Refused

POLL_S = 0.1
ENGINE_STOP_S, SERVER_STOP_S, COLLECTOR_STOP_S = 20.0, 15.0, 10.0
START_FAILURES = 3
"""A child that fails this often before everything was ready once will not get better by itself."""
EXIT_HOPELESS = 78
"""What a child exits with when trying again cannot help: settings, keys, a damaged log. (EX_CONFIG of sysexits.h.)"""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something a person may want to know."""

    kind: Literal["waiting", "ready", "incomplete", "died", "frozen", "restarted", "failed", "stopping", "stopped"]
    text: str
    lines: tuple[str, ...] = ()


Say = Callable[[Notice], None]


class Supervisor:
    def __init__(self, project: Project, lock: UpLock, port: int, clock: Clock, say: Say) -> None:
        self._project = project
        self._lock = lock
        self._clock = clock
        self._listener = say
        self._stop_signals = 0
        host = project.settings.server.host
        tls = bool(project.settings.server.tls_cert)
        self._holder = Holder(os.getpid(), port, clock.now_ms(), host, tls)
        folder, logs = str(project.folder), project.logs_folder
        mark = supervised_mark(project)
        server = ["headrace.server.main", "--project", folder, "--port", str(port)]
        engine = ["headrace.coordinate.engine", "--project", folder]
        self._server = Child("server", server, logs / "server.log", mark, clock)
        self._engine = Child("engine", engine, logs / "engine.log", mark, clock)
        taking = ["headrace.server.collector", "--project", folder, "--port", str(collect_port(project, port))]
        self._collectors = [
            Child(f"collector {number}", taking, logs / f"collector-{number}.log", mark, clock)
            for number in range(1, project.settings.server.workers)
        ]
        listening = ["headrace.server.listeners", "--project", folder]
        self._listeners = Child("listener", listening, logs / "listeners.log", mark, clock)
        self._listening = False
        self._ready = False
        self._waiting_for = ""
        self._looked = clock.monotonic()
        self._ends: dict[str, ChildEnd] = {}

    @property
    def url(self) -> str:
        return self._holder.url

    def run(self) -> int:
        """Until a signal says stop (0) or it cannot be started (1)."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._on_signal)
        self._lock.announce(self._holder)
        try:
            self._server.start()
            self._engine.start()
            for child in self._collectors:
                child.start()
            self._report()
            return self._watch()
        finally:
            self._stop()

    def _watch(self) -> int:
        checked = 0.0
        while not self._stop_signals:
            if not self._listening and listeners_needed(self._project):
                # Started when the first file asks for it; from then on it looks at the files itself.
                self._listening = True
                self._begin(self._listeners)
            now = self._clock.monotonic()
            elapsed, self._looked = now - self._looked, now
            for child in self._children():
                if not self._tend(child, elapsed):
                    return 1
            if not self._ready and self._clock.monotonic() - checked >= 0.2:
                checked = self._clock.monotonic()
                self._check_ready()
            time.sleep(POLL_S)
        return 0

    def _children(self) -> tuple[Child, ...]:
        listeners = (self._listeners,) if self._listening else ()
        return (self._server, self._engine, *self._collectors, *listeners)

    def _tend(self, child: Child, elapsed: float = 0.0) -> bool:
        """Restart a child that died or is frozen, after its back-off. False if there is no point."""
        child.rotate_log()
        self._check_frozen(child, elapsed)
        code = child.died()
        if code is not None:
            lines = tuple(child.last_lines())
            if not self._ready and (child.failures >= START_FAILURES or code == EXIT_HOPELESS):
                self._say(Notice("failed", f"the {child.name} does not start ({_exit_text(code)})", lines))
                return False
            again = f"starting it again in {child.wait_s:.1f} s" if child.wait_s else "starting it again"
            self._ended(child, f"ended ({_exit_text(code)})")
            self._say(Notice("died", f"the {child.name} ended ({_exit_text(code)}); {again}", lines[-3:]))
        elif child.due() and self._begin(child):
            self._say(Notice("restarted", f"the {child.name} was started again (pid {child.pid})"))
            self._report()
        return True

    def _check_frozen(self, child: Child, elapsed: float) -> None:
        """Kill a child that runs but has not answered for too long: stuck, or without an answer from its JVM; sooner if
        a signal has stopped it."""
        limit, silent = self._project.settings.server.frozen_seconds, child.silent_s(elapsed)
        if limit <= 0:
            return
        stopped = child.stopped_s(elapsed, silent) >= STOPPED_S
        if silent < limit and not stopped:
            return
        why = " (it was stopped by a signal)" if stopped else ""
        pid, text = child.pid, f"did not answer for {min(silent, limit):.0f} s and was killed{why}"
        child.end_frozen()
        self._ended(child, text)
        again = f"starting it again in {child.wait_s:.1f} s"
        self._say(Notice("frozen", f"the {child.name} (pid {pid}) {text}; {again}", tuple(child.last_lines(3))))

    def _ended(self, child: Child, text: str) -> None:
        self._ends[child.name] = ChildEnd(text, self._clock.now_ms())
        self._report()

    def _report(self) -> None:
        """Write down for `headrace status` which children were restarted, and why. It is also there while the server
        does not answer."""
        children = [
            ChildReport(child.name, child.pid, max(0, child.restarts), self._ends.get(child.name))
            for child in self._children()
        ]
        # A full disk is no reason to stop.
        with contextlib.suppress(OSError):
            write_report(self._project.data / CHILDREN_FILE, children)

    def _begin(self, child: Child) -> bool:
        """One that cannot be started now, for want of files, processes or memory, takes nothing with it."""
        try:
            child.start()
        except OSError as error:
            again = f"trying again in {child.wait_s:.1f} s"
            self._say(Notice("died", f"the {child.name} could not be started ({error}); {again}"))
            return False
        return True

    def _check_ready(self) -> None:
        found = readiness(self.url, own_key(self._project), trust=trust_own(self._project))
        if found.settled:
            # Statements that failed fail again when they are tried again: what works is served meanwhile.
            self._ready = True
            kind: Literal["ready", "incomplete"] = "ready" if found.ready else "incomplete"
            self._say(Notice(kind, self.url if found.ready else found.summary, found.problems))
        elif (text := ", ".join(found.waiting_for)) != self._waiting_for:
            self._waiting_for = text
            self._say(Notice("waiting", text))

    def _stop(self) -> None:
        """The engine and the collectors first: their last commits need the server. A second signal cuts all short."""
        self._say(Notice("stopping", "stopping"))
        for child in (*self._collectors, self._listeners):
            child.terminate()
        collectors = [(child, COLLECTOR_STOP_S) for child in (*self._collectors, self._listeners)]
        for child, seconds in (*collectors, (self._engine, ENGINE_STOP_S), (self._server, SERVER_STOP_S)):
            child.terminate()
            deadline = self._clock.monotonic() + seconds
            while not child.stopped_within(POLL_S):
                if self._stop_signals > 1 or self._clock.monotonic() > deadline:
                    break
            child.kill()
        self._lock.release()
        self._say(Notice("stopped", "stopped"))

    def _say(self, notice: Notice) -> None:
        # A terminal that went away is no reason to stop.
        with contextlib.suppress(OSError):
            self._listener(notice)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stop_signals += 1


def collect_port(project: Project, port: int) -> int:
    """Where collector processes listen, for a server on `port`."""
    return project.settings.server.collect_port or port + 1


def prepare(project: Project, port: int | None, clock: Clock) -> tuple[UpLock, int]:
    """Everything that can be refused before anything is started: the binding, the lock, the port."""
    settings = project.settings.server
    check_binding(project)
    server_files(project)
    check_workers(project)
    lock = UpLock.acquire(project.data)
    try:
        sweep(supervised_mark(project))
        return lock, _free_port(project, settings.port if port is None else port, clock)
    except BaseException:
        lock.release()
        raise


def _free_port(project: Project, port: int, clock: Clock) -> int:
    """Our own server, killed a moment ago, may still hold the port: that is worth waiting for."""
    deadline = clock.monotonic() + 10
    while True:
        try:
            return choose_port(project.settings.server.host, port)
        except Conflict:
            found = port_holder(port)
            ours = found is not None and found.project is not None and found.project.resolve() == project.folder
            if not ours or clock.monotonic() > deadline:
                raise
            time.sleep(POLL_S)


def check_binding(project: Project) -> None:
    """Anything but loopback needs keys."""
    host = project.settings.server.host
    if project.settings.auth.keys or _is_loopback(host):
        return
    raise Refused(
        f"refusing to listen on `{host}` without keys: anybody who reaches it could read and change everything",
        hint='set a key in headrace.toml:  [[auth.keys]] with key = "…" and role = "admin", or listen on 127.0.0.1',
    )


def check_workers(project: Project) -> None:
    workers = project.settings.server.workers
    if not 1 <= workers <= MOST_WORKERS:
        raise ConfigError(f"`[server] workers` cannot be {workers}", hint=f"1 to {MOST_WORKERS}")
    if workers > 1 and project.settings.log.backend != "local":
        raise ConfigError("`[server] workers` is for the local log", hint="with Kafka, start more servers instead")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True)
class Readiness:
    """What `/readyz` says."""

    waiting_for: tuple[str, ...]
    problems: tuple[str, ...] = ()
    failed: tuple[str, ...] = ()
    """Statements of the project's files that could not be created."""
    answered: bool = True

    @property
    def settled(self) -> bool:
        """Whether nothing is waited for: it is ready, or will not become ready by itself."""
        return not self.waiting_for

    @property
    def ready(self) -> bool:
        return self.settled and not self.failed

    @property
    def summary(self) -> str:
        """
        >>> Readiness((), (), ("a.sql:1:1: …", "b.sql:2:1: …")).summary
        "not ready: 2 statements of the project's files failed"
        """
        if not self.settled:
            return "waiting for " + ", ".join(self.waiting_for)
        if not self.failed:
            return "ready"
        one = len(self.failed) == 1
        return f"not ready: {len(self.failed)} statement{'s' * (not one)} of the project's files failed"


def readiness(url: str, key: str | None, timeout: float = 2.0, trust: ssl.SSLContext | None = None) -> Readiness:
    scheme, _, host = url.partition("://")
    connection = (
        http.client.HTTPSConnection(host, timeout=timeout, context=trust)
        if scheme == "https"
        else http.client.HTTPConnection(host, timeout=timeout)
    )
    try:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        connection.request("GET", "/readyz", headers=headers)
        answer = connection.getresponse()
        body = json.loads(answer.read())
        waiting, failed = tuple(body.get("waiting_for", ())), tuple(body.get("failed", ()))
        if answer.status != 200 and not waiting and not failed:
            waiting = ("the server",)
        return Readiness(waiting, tuple(body.get("problems", ())), failed)
    except (OSError, http.client.HTTPException, ValueError):
        return Readiness(("the server",), answered=False)
    finally:
        connection.close()


def supervised_mark(project: Project) -> str:
    return str(project.data.resolve())


def _exit_text(code: int) -> str:
    if code == EXIT_STALLED:
        return "a query was stalled, also after it was restarted"
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"
