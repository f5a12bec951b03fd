"""A child process of the supervisor: in its own process group, logged to a file, dead when the supervisor is."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from headrace.clock import Clock
from headrace.coordinate.heartbeat import HEARTBEAT, Silence
from headrace.coordinate.stopped import SUSPECT_S, StoppedTime

LOG_BYTES = 10 * 1024 * 1024
FIRST_BACKOFF_S, LONGEST_BACKOFF_S = 0.5, 30.0
STEADY_AFTER_S = 60.0
"""A child that ran this long was healthy: its next death starts the back-off anew."""

MARK = "HEADRACE_SUPERVISED"
"""Environment variable, inherited by whatever a child starts (the JVM too), that says which project it belongs to."""

STALLS = "HEADRACE_STALLS"
"""Environment variable that tells a child how often it was restarted in a row because something in it was stalled."""
EXIT_STALLED = 75
"""What the engine exits with when a query is stalled and only a new process may help. (EX_TEMPFAIL of sysexits.h.)"""
FORGET_STALLS_S = 3600.0

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Child:
    """One process that should always run. Not for a process with several threads: what runs between fork and exec
    must not meet somebody else's lock."""

    def __init__(self, name: str, arguments: Sequence[str], log: Path, mark: str, clock: Clock) -> None:
        self.name = name
        self.log = log
        self.failures = 0
        self._command = [sys.executable, "-m", *arguments]
        self._mark = mark
        self._clock = clock
        self._process: subprocess.Popen[bytes] | None = None
        self._started = 0.0
        self._backoff = FIRST_BACKOFF_S
        self._start_after = 0.0
        self._silence: Silence | None = None
        self._stopped = StoppedTime()
        self._stalls = 0
        self.restarts = -1
        """How often it was started after the first time."""

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """`OSError` if it cannot be: files, processes or memory are short. Then it is put off."""
        try:
            self._start()
        except OSError:
            self._put_off()
            raise
        self._started = self._clock.monotonic()
        self.restarts += 1

    def _start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        parent = os.getpid()

        def die_with_parent() -> None:
            _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            # The parent may have died between fork and here; then nobody would send the signal.
            if os.getppid() != parent:
                os._exit(1)

        silence = Silence()
        try:
            with self.log.open("ab") as output:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=os.environ
                    | {
                        MARK: self._mark,
                        "PYTHONUNBUFFERED": "1",
                        HEARTBEAT: str(silence.writing),
                        STALLS: str(self._stalls),
                    },
                    pass_fds=(silence.writing,),
                    # Ctrl-C reaches only the supervisor, which stops its children in order.
                    process_group=0,
                    preexec_fn=die_with_parent,
                )
        except BaseException:
            silence.close()
            raise
        finally:
            silence.handed_over()
        self._silence = silence

    def silent_s(self, elapsed: float) -> float:
        """For how many seconds it has not been heard, `elapsed` seconds after the last look; 0 if it does not run."""
        return self._silence.after(elapsed) if self._silence else 0.0

    def stopped_s(self, elapsed: float, silent: float) -> float:
        """For how many seconds it, or its JVM, has been stopped by a signal. Looked at only once it is silent."""
        if self._process is None or silent < SUSPECT_S:
            self._stopped.reset()
            return 0.0
        return self._stopped.after(elapsed, self._process.pid)

    def end_frozen(self) -> None:
        """Kill a child that does not answer, and plan its next start."""
        self.kill()
        self._plan_start()

    def died(self) -> int | None:
        """The exit code, once, when the process has ended by itself; plans when it may be started again."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        self.kill()
        if code != EXIT_STALLED or self._clock.monotonic() - self._started > FORGET_STALLS_S:
            self._stalls = 0
        self._stalls += code == EXIT_STALLED
        self._plan_start()
        # Killed from outside says nothing about what it would have done.
        self.failures += code >= 0
        return code

    def _plan_start(self) -> None:
        if self._clock.monotonic() - self._started > STEADY_AFTER_S:
            self._backoff = FIRST_BACKOFF_S
        self._put_off()

    def _put_off(self) -> None:
        self._start_after = self._clock.monotonic() + self._backoff
        self._backoff = min(self._backoff * 2, LONGEST_BACKOFF_S)

    def due(self) -> bool:
        """Whether it is down and has waited long enough."""
        return self._process is None and self._clock.monotonic() >= self._start_after

    @property
    def wait_s(self) -> float:
        return max(0.0, self._start_after - self._clock.monotonic())

    def terminate(self) -> None:
        if self._process and self._process.poll() is None:
            self._process.terminate()

    def stopped_within(self, seconds: float) -> bool:
        if self._process is None:
            return True
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def kill(self) -> None:
        """End the whole group: whatever the process started ends with it."""
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process = None
        if self._silence is not None:
            self._silence.close()
            self._silence = None

    def rotate_log(self) -> None:
        """Keep the log small. The child has the file open for appending, so it is copied and emptied, not renamed."""
        try:
            if self.log.stat().st_size < LOG_BYTES:
                return
            shutil.copyfile(self.log, self.log.with_suffix(".log.1"))
            os.truncate(self.log, 0)
        except OSError:
            # A full disk must not stop the supervisor; the log of the next minutes is what is lost.
            return

    def last_lines(self, count: int = 20) -> list[str]:
        return tail(self.log, count)


def tail(file: Path, count: int) -> list[str]:
    try:
        with file.open("rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(0, size - 64 * 1024))
            return stream.read().decode(errors="replace").splitlines()[-count:]
    except OSError:
        return []


def leftovers(mark: str) -> Iterator[int]:
    """Processes of this project that outlived their supervisor: a JVM that has not yet noticed, say."""
    wanted = f"{MARK}={mark}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            environment = Path(f"/proc/{name}/environ").read_bytes()
        except OSError:
            continue
        if wanted in environment.split(b"\0"):
            yield int(name)


def sweep(mark: str) -> list[int]:
    """End leftovers, so that nobody writes to this project behind the new supervisor's back."""
    ended = []
    for pid in leftovers(mark):
        try:
            os.kill(pid, signal.SIGKILL)
            ended.append(pid)
        except (ProcessLookupError, PermissionError):
            continue
    return ended
