"""`headrace agent`: checking files, running agents, listing components."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headrace.cli.main import app
from headrace.errors import ConfigError, UsageError
from tests.collect.agents.making import local_log, values

DECK = Path(__file__).parents[1] / "collect" / "agents" / "deck.properties"


def run(*words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["agent", *words], catch_exceptions=True)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return done.stdout


def test_check_explains_and_finds_mistakes(tmp_path: Path) -> None:
    assert "r1 (seq) → c1 (memory, capacity 1000) → k1 (kafka" in run("check", str(DECK))
    file = tmp_path / "bad.properties"
    file.write_text(DECK.read_text().replace("= seq", "= sek"))
    said = run("check", str(file), code=1)
    assert f"{file}:11: error: there is no source of type `sek`: did you mean `seq`?" in said
    found = json.loads(run("check", str(file), "--json", code=1))
    assert found["fine"] is False
    assert found["problems"][2]["line"] == 11
    (tmp_path / "empty.properties").write_text("")
    with pytest.raises(ConfigError, match="has no agents"):
        run("check", str(tmp_path / "empty.properties"))


def test_run_until_done_and_print_what_was_counted(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text("")
    file = tmp_path / "agent.properties"
    file.write_text(DECK.read_text() + "a1.sources.r1.totalEvents = 50\n")
    options = ("--name", "a1", "--conf", str(file), "--project", str(tmp_path), "--brokers", "log", "--until-done")
    counted = json.loads(run("run", *options, "--json"))
    assert counted["SINK.k1"]["EventDrainSuccessCount"] == "50"
    with local_log(tmp_path / ".headrace" / "log") as log:
        assert len(values(log, "mytopic")) == 50
    with pytest.raises(UsageError, match="`--brokers` cannot be `rabbit`"):
        run("run", "--conf", str(file), "--brokers", "rabbit")


def test_components() -> None:
    assert "TAILDIR" in run("components")
    assert "positionFile" in run("components", "taildir")
    assert json.loads(run("components", "memory", "--json"))["components"][0]["role"] == "channel"
