"""Flume's own Avro client and server, with ours at the other end."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jvm.build import find_javac
from scripts.jars import FLUME, jar_files
from tests.collect.agents.making import running
from tests.collect.agents.test_agent import flow, shelf_ports, source_port, texts
from tests.support import free_port, wait_for

pytestmark = pytest.mark.slow
TALK = Path(__file__).parent / "java" / "Talk.java"


@pytest.fixture(scope="module")
def talk(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs Flume's end."""
    classes = tmp_path_factory.mktemp("flume")
    path = ":".join(map(str, [classes, *jar_files(FLUME)]))
    subprocess.run([find_javac(), "-cp", path, "-d", str(classes), str(TALK)], check=True, timeout=240)
    return ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", path, "Talk"]


@pytest.fixture
def listening(talk: list[str], tmp_path: Path) -> Iterator[tuple[int, Path]]:
    port, said = free_port(), tmp_path / "said"
    with said.open("w") as out:
        server = subprocess.Popen([*talk, "listen", str(port)], stdout=out, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: "listening" in said.read_text(), 30, "Flume's server")
        yield port, said
    finally:
        server.kill()
        server.wait()


def test_flumes_client_sends_to_our_source(talk: list[str]) -> None:
    shelf, ports = shelf_ports()
    with running(flow("type = avro\nbind = 127.0.0.1\nport = 0"), ports) as agent:
        subprocess.run([*talk, "send", str(source_port(agent)), "120"], check=True, timeout=240, capture_output=True)
        wait_for(lambda: len(shelf.events) == 121, 30, "the events")
    assert texts(shelf) == ["alone", *(f"event {number}" for number in range(120))]
    assert shelf.events[0].headers == {"who": "flume"}
    assert shelf.events[-1].headers == {"n": "119"}


def test_our_sink_sends_to_flumes_server(listening: tuple[int, Path]) -> None:
    port, said = listening
    sink = f"type = avro\nhostname = 127.0.0.1\nport = {port}"
    with running(flow("type = seq\ntotalEvents = 201\nbatchSize = 50", sink)) as agent:
        wait_for(agent.finished, 30, "the agent")
    found = [line for line in said.read_text().splitlines() if line[0].isdecimal()]
    assert found == [f"{number} 0" for number in range(201)]
