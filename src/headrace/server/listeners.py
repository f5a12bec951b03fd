"""`python -m headrace.server.listeners --project DIR`: the process of the collectors that are not asked over HTTP.

It runs those of `collectors/` that listen on sockets of their own or are clients of somebody else. They hand their
events to the log's owner, each once (`collect.outlet`), so the server may be killed under them.
A changed file starts its collector anew, and no other; a broken one lets it go on as it was.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import random
import sys
from pathlib import Path

import msgspec

from headrace.access.files import keep_private
from headrace.clock import Clock, GuardedClock
from headrace.collect.definitions import Definition, load_definitions
from headrace.collect.feed import Feed
from headrace.collect.gates import stamp_of
from headrace.collect.kinds import load
from headrace.collect.outlet import Stopped
from headrace.collect.reset import RESETS_FILE
from headrace.collect.status import COLLECTORS_REPORT_FILE, COLLECTORS_STATUS, CollectorStatus, Counters, Report
from headrace.config import Project, load_project
from headrace.coordinate.heartbeat import Heartbeat
from headrace.coordinate.reports import write_report
from headrace.coordinate.supervisor import EXIT_HOPELESS
from headrace.errors import ConfigError, HeadraceError, Refused
from headrace.lean import collect_seldom, without_pandas
from headrace.log.base import Log
from headrace.log.local import LocalLog
from headrace.log.local.client import LocalClient
from headrace.log.open import open_log
from headrace.log.registry.schemas import RegistrySchemas
from headrace.logs import start_logging
from headrace.server.signals import stop_on_signals

PROCESS = "listeners"
LOOK_S, REPORT_S = 0.5, 0.5
STOP_S = 5.0
TELL_AGAIN_S = 1.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STEADY_S = 60.0
"""A collector that ran this long was well: its next failure starts the pauses anew."""

logger = logging.getLogger("headrace.listeners")


class Runner:
    """One collector, started again whenever it fails."""

    def __init__(self, project: Project, definition: Definition, log: Log, clock: Clock, counters: Counters | None):
        self.definition = definition
        self._project, self._log, self._clock = project, log, clock
        self.counters = counters or Counters(definition.name, clock)
        self.counters.becomes("waiting", "starting")
        self._closing = False
        self._task = asyncio.create_task(self._run(), name=definition.name)

    async def _run(self) -> None:
        pause = FIRST_PAUSE_S
        start = load(self.definition.kind.start)
        while True:
            started = self._clock.monotonic()
            feed = Feed(self._project, self.definition, self._log, self._clock, self.counters)
            try:
                await start(feed)
                return
            except Stopped:
                return
            except (HeadraceError, OSError) as error:
                self._failed(str(error))
            except Exception as error:
                logger.exception("collector `%s` failed", self.definition.name)
                self._failed(f"{type(error).__name__}: {error}")
            finally:
                self._closing = True
                await feed.close(STOP_S)
                self._closing = False
            if self._clock.monotonic() - started > STEADY_S:
                pause = FIRST_PAUSE_S
            await asyncio.sleep(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, LONGEST_PAUSE_S)

    def _failed(self, why: str) -> None:
        logger.warning("collector `%s` failed: %s", self.definition.name, why)
        self.counters.failed(why)
        self.counters.becomes("failed", why)

    async def stop(self) -> None:
        """What it has taken is written, if the log is there. Told more than once if need be: a library may lose it, and
        no other collector could be started or stopped."""
        while not self._task.done():
            if not self._closing:
                self._task.cancel()
            await asyncio.wait([self._task], timeout=TELL_AGAIN_S)


class Listeners:
    """All of them, as the files say."""

    def __init__(self, project: Project, log: Log, clock: Clock) -> None:
        self._project, self._log, self._clock = project, log, clock
        self._runners: dict[str, Runner] = {}
        self._stamp: object = None
        self._resets = self._read_resets()

    async def run(self, stop: asyncio.Event) -> None:
        reporting = asyncio.create_task(self._report())
        try:
            while not stop.is_set():
                stamp = stamp_of(self._project)
                if stamp != self._stamp:
                    self._stamp = stamp
                    await self._apply()
                await self._apply_resets()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await stop.wait()
        finally:
            await asyncio.gather(*(runner.stop() for runner in self._runners.values()))
            reporting.cancel()

    async def _apply(self) -> None:
        """Start what is new, stop what is gone, both for what changed. Broken files change nothing."""
        definitions, problems = load_definitions(self._project)
        wanted = {one.name: one for one in definitions if one.kind.start and one.settings.enabled}
        broken = {problem.name for problem in problems}
        for name, runner in list(self._runners.items()):
            if name in broken or wanted.get(name) == runner.definition:
                continue
            await runner.stop()
            del self._runners[name]
            if name in wanted:
                self._start(wanted[name], runner.counters)
        for name, definition in wanted.items():
            if name not in self._runners:
                self._start(definition, None)

    async def _apply_resets(self) -> None:
        """What was reset begins anew, whatever it waits for."""
        resets = self._read_resets()
        changed = [name for name, reset in resets.items() if reset != self._resets.get(name)]
        self._resets = resets
        for runner in [self._runners[name] for name in changed if name in self._runners]:
            await runner.stop()
            self._start(runner.definition, runner.counters)

    def _read_resets(self) -> dict[str, str]:
        try:
            return msgspec.json.decode((self._project.data / RESETS_FILE).read_bytes(), type=dict[str, str])
        except (OSError, msgspec.DecodeError):
            return {}

    def _start(self, definition: Definition, counters: Counters | None) -> None:
        logger.info("starting the collector `%s`", definition.name)
        self._runners[definition.name] = Runner(self._project, definition, self._log, self._clock, counters)

    def statuses(self) -> list[CollectorStatus]:
        return [runner.counters.status() for runner in list(self._runners.values())]

    async def _report(self) -> None:
        while True:
            try:
                body = msgspec.to_builtins(Report(PROCESS, os.getpid(), self.statuses()))
                await asyncio.to_thread(self._say, body)
            except (HeadraceError, OSError):
                pass  # the server is away; it will hear again when it is back
            except Exception:
                # Without reports everybody would think that nothing is collected any more.
                logger.exception("what the collectors do could not be told")
            await asyncio.sleep(REPORT_S)

    def _say(self, body: object) -> None:
        if isinstance(self._log, LocalClient | LocalLog):
            self._log.call(COLLECTORS_STATUS, body)
        else:
            write_report(self._project.data / COLLECTORS_REPORT_FILE, body)


async def serve(project: Project, clock: Clock, heartbeat: Heartbeat) -> int:
    """Until a signal says stop."""
    heartbeat.probe_loop(asyncio.get_running_loop())
    stop = stop_on_signals()
    log = await _connect(project, clock, stop)
    if log is not None:
        await Listeners(project, log, clock).run(stop)
        log.close()
    return 0


async def _connect(project: Project, clock: Clock, stop: asyncio.Event) -> Log | None:
    """The log, as soon as it is there."""
    while not stop.is_set():
        try:
            return await asyncio.to_thread(_open, project, clock)
        except (ConfigError, Refused):
            raise
        except (HeadraceError, OSError) as error:
            logger.debug("not connected: %s", error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await stop.wait()
    return None


def _open(project: Project, clock: Clock) -> Log:
    if project.settings.log.backend != "local":
        return open_log(project, clock)
    log = LocalClient(project.log_folder)
    log.schemas = RegistrySchemas.of_log(log)
    return log


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="headrace.server.listeners", description="Runs a project's listeners.")
    parser.add_argument("--project", type=Path, required=True)
    options = parser.parse_args(arguments)
    heartbeat = Heartbeat()
    without_pandas()
    collect_seldom()
    keep_private()
    start_logging()
    try:
        project = load_project(options.project)
        return asyncio.run(serve(project, GuardedClock(project.settings.server.clock_trust_seconds), heartbeat))
    except HeadraceError as error:
        print(error, file=sys.stderr)
        return EXIT_HOPELESS if isinstance(error, ConfigError | Refused) else 1


if __name__ == "__main__":
    sys.exit(main())
