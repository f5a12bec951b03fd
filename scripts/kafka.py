"""Kafka brokers on this machine, from Maven's jars: `make kafka` (one), `make kafka-cluster` (three).

Standard library only. Brokers are KRaft nodes that are controllers too, bound to loopback. Their data is kept
in the folder given; without one it is made for the run and removed afterwards.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from scripts.jars import KAFKA, JarsMissing, jar_files

HOST = "127.0.0.1"
_START_S, _STOP_S = 90.0, 30.0
_LOGGING = """rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = [%d] %p %m (%c)%n
logger.server.name = kafka.server.KafkaRaftServer
logger.server.level = INFO
"""
QUICK = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.backoff.ms": "500",
    "log.retention.check.interval.ms": "1000",
    "log.initial.task.delay.ms": "500",
    "file.delete.delay.ms": "200",
}
"""Settings for tests: little work at the start, and background work that does not let one wait."""


SMALL_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")


class BrokerFailed(Exception):
    """A broker did not start; the end of what it said."""


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((HOST, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


@dataclass(frozen=True)
class Node:
    """One broker: its number and where it listens."""

    number: int
    port: int
    controller_port: int

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"


def cluster_id(made_of: uuid.UUID) -> str:
    """Kafka wants 16 bytes in URL-safe base64; what begins with `-` its tools take for an option."""
    made = base64.urlsafe_b64encode(made_of.bytes).decode().rstrip("=")
    return f"A{made[1:]}" if made.startswith("-") else made


@dataclass
class Cluster:
    """Brokers of one cluster. `start` them, `stop` them; single ones may be killed, paused and started again."""

    folder: Path
    nodes: Sequence[Node]
    heap_mb: int = 512
    settings: Mapping[str, str] = field(default_factory=dict)
    format_options: Sequence[str] = ()
    """Further options of Kafka's storage tool, e.g. `--add-scram`."""
    java_options: Sequence[str] = ()
    log_level: str = "WARN"
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        jar_files(KAFKA)
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            formatting = [tool for node in self.nodes if (tool := self._format(node)) is not None]
            for tool in formatting:
                said, _ = tool.communicate()
                if tool.returncode != 0:
                    raise BrokerFailed("formatting the broker's storage failed:\n" + said.decode())
            for node in self.nodes:
                self.launch(node.number)
            for node in self.nodes:
                self.wait_until_up(node.number)
        except BaseException:
            self.stop(kill=True)
            raise

    def _node_folder(self, number: int) -> Path:
        return self.folder / f"broker-{number}"

    def _format(self, node: Node) -> subprocess.Popen[bytes] | None:
        """Write the configuration, and prepare the storage unless that was done in an earlier run."""
        place = self._node_folder(node.number)
        place.mkdir(exist_ok=True)
        (place / "log4j2.properties").write_text(_LOGGING.format(level=self.log_level))
        properties = "".join(f"{name}={value}\n" for name, value in self._properties(node).items())
        (place / "server.properties").write_text(properties)
        if (place / "data" / "meta.properties").exists():
            return None
        options = ["format", "-t", self._cluster_id(), "-c", str(place / "server.properties"), *self.format_options]
        return self._java(place, "kafka.tools.StorageTool", options, subprocess.PIPE)

    def _cluster_id(self) -> str:
        """Made once for the folder."""
        file = self.folder / "cluster-id"
        if not file.exists():
            file.write_text(cluster_id(uuid.uuid4()))
        return file.read_text()

    def _properties(self, node: Node) -> dict[str, str]:
        copies = str(min(3, len(self.nodes)))
        in_sync = str(2 if len(self.nodes) >= 3 else 1)
        voters = ",".join(f"{other.number}@{HOST}:{other.controller_port}" for other in self.nodes)
        return {
            "process.roles": "broker,controller",
            "node.id": str(node.number),
            "controller.quorum.voters": voters,
            "listeners": f"PLAINTEXT://{node.address},CONTROLLER://{HOST}:{node.controller_port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": str(self._node_folder(node.number) / "data"),
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
            "auto.create.topics.enable": "false",
        } | {
            name: value.format(port=node.port, controller_port=node.controller_port, number=node.number)
            for name, value in self.settings.items()
        }

    def launch(self, number: int) -> None:
        """Start one broker's process, without waiting for it."""
        place = self._node_folder(number)
        with (place / "broker.log").open("wb") as said:
            self.processes[number] = self._java(place, "kafka.Kafka", [str(place / "server.properties")], said.fileno())

    def _java(self, place: Path, main: str, arguments: Sequence[str], out: int) -> subprocess.Popen[bytes]:
        java = Path(os.environ["JAVA_HOME"]) / "bin" / "java" if os.environ.get("JAVA_HOME") else Path("java")
        jars = str(jar_files(KAFKA)[0].parent / "*")
        logging = f"-Dlog4j2.configurationFile={place / 'log4j2.properties'}"
        options = [f"-Xmx{self.heap_mb}m", "-Xms64m", logging, *self.java_options]
        return subprocess.Popen(
            [str(java), *options, "-cp", jars, main, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            preexec_fn=_die_with_parent,
        )

    def run_tool(self, main: str, *arguments: str) -> str:
        """What one of Kafka's own command line tools prints."""
        place = self._node_folder(self.nodes[0].number)
        tool = self._java(place, main, arguments, subprocess.PIPE)
        said, _ = tool.communicate()
        if tool.returncode != 0:
            raise BrokerFailed(f"{main} failed:\n{said.decode(errors='replace')}")
        return said.decode(errors="replace")

    def wait_until_up(self, number: int) -> None:
        file, process = self._node_folder(number) / "broker.log", self.processes[number]
        deadline = time.monotonic() + _START_S
        while b"Kafka Server started" not in file.read_bytes():
            if process.poll() is not None or time.monotonic() > deadline:
                what = "ended" if process.poll() is not None else f"is not up after {_START_S:.0f} s"
                tail = "\n".join(file.read_text(errors="replace").splitlines()[-20:])
                raise BrokerFailed(f"broker {number} {what}; the end of {file}:\n{tail}")
            time.sleep(0.05)

    def signal(self, number: int, what: signal.Signals) -> None:
        self.processes[number].send_signal(what)

    def kill(self, number: int) -> None:
        self.processes[number].kill()
        self.processes[number].wait()

    def stop(self, kill: bool = False) -> None:
        """End all of them: in order, or with `kill` at once."""
        for process in self.processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill() if kill else process.terminate()
        deadline = time.monotonic() + _STOP_S
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.processes.clear()

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()


def _die_with_parent() -> None:
    """A broker must not outlive a run that was killed (Linux; elsewhere it is stopped by hand)."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)
    # Ctrl-C is for whoever started us, who then stops the brokers in order.
    os.setpgid(0, 0)


def make_nodes(count: int, first_port: int | None = None) -> list[Node]:
    if first_port is None:
        ports = free_ports(2 * count)
        return [Node(number + 1, ports[2 * number], ports[2 * number + 1]) for number in range(count)]
    return [Node(number + 1, first_port + 2 * number, first_port + 2 * number + 1) for number in range(count)]


def quick_cluster(folder: Path, nodes: Sequence[Node], settings: Mapping[str, str] | None = None) -> Cluster:
    """Return a cluster for tests: small heaps, and short intervals."""
    return Cluster(folder, nodes, heap_mb=320, settings=QUICK | dict(settings or {}), java_options=SMALL_JVM)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--brokers", type=int, default=1, choices=(1, 3))
    parser.add_argument(
        "--port", type=int, default=9092, help="of the first broker; the next even ones follow; 0: free ones"
    )
    parser.add_argument("--data", type=Path, help="folder for the brokers' data, kept; without it nothing is")
    parser.add_argument("--heap-mb", type=int, default=512)
    parser.add_argument("--until-pid", type=int, help="stop when this process has ended")
    parser.add_argument("--quick", action="store_true", help="settings for tests: small heap, short intervals")
    options = parser.parse_args()
    folder = options.data or Path(tempfile.mkdtemp(prefix="headrace-kafka-"))
    nodes = make_nodes(options.brokers, options.port or None)
    cluster = (
        quick_cluster(folder.resolve(), nodes) if options.quick else Cluster(folder.resolve(), nodes, options.heap_mb)
    )
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        print(f"  starting {options.brokers} Kafka broker{'s' if options.brokers > 1 else ''} …", flush=True)
        cluster.start()
        print(f"  ready    bootstrap = {cluster.bootstrap}\n  data in  {folder}\n  Ctrl-C stops.", flush=True)
        while all(process.poll() is None for process in cluster.processes.values()):
            if options.until_pid is not None and not Path(f"/proc/{options.until_pid}").exists():
                return 0
            time.sleep(0.5)
        print("  a broker ended by itself; see broker.log in its folder", flush=True)
        return 1
    except (JarsMissing, BrokerFailed) as failure:
        print(f"  ✗ {failure}", flush=True)
        return 1
    except KeyboardInterrupt:
        print("  stopping …", flush=True)
        return 0
    finally:
        cluster.stop(kill=options.quick)
        if options.data is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
