"""`collectors/*.toml`: what is read, and what somebody is told about a file that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.collect.definitions import CollectorSettings, Definition, read_definition
from headrace.collect.kinds import KINDS, load
from headrace.collect.samples import FILLED, example_text
from headrace.errors import ConfigError
from headrace.toml_files import secret


def read(text: str, name: str = "web", keys_needed: bool = False) -> Definition | str:
    found = read_definition(Path(f"/project/collectors/{name}.toml"), text, keys_needed)
    return found if isinstance(found, Definition) else str(found)


def test_a_file_says_type_and_topic() -> None:
    found = read('type = "http"\ntopic = "orders"\n')
    assert isinstance(found, Definition)
    assert (found.name, found.kind.name, found.settings.topic, found.settings.enabled) == (
        "web",
        "http",
        "orders",
        True,
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('type = "http"\ntopic = ', "collectors/web.toml:2: not valid TOML: Invalid value"),
        ('topic = "orders"', "collectors/web.toml:1: a collector needs a `type`"),
        ('\n\ntype = "carrier-pigeon"', "collectors/web.toml:3: `carrier-pigeon` is not a type of collector"),
        ('type = "http"', "collectors/web.toml:1: a collector needs a `topic`"),
        ('type = "http"\n\ntopic = 3', "collectors/web.toml:3: `topic`: expected text, got a whole number"),
        ('type = "http"\ntopic = "t"\ntopics = "t"', "collectors/web.toml:3: there is no setting `topics`"),
        ('type = "http"\ntopic = "t"\nkeys = ["k"]', "collectors/web.toml:3: a collector of type `http` has no keys"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(text: str, said: str) -> None:
    found = read(text)
    assert isinstance(found, str)
    assert found.startswith(said)


def test_an_empty_key_is_none() -> None:
    assert "web.toml:3: a key is empty" in str(read('type = "segment"\ntopic = "t"\nkeys = ["a", ""]'))


def test_a_name_must_be_one() -> None:
    assert "is not a name for a collector" in str(read('type = "http"\ntopic = "t"', name="a b"))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_can_be_loaded(kind: object) -> None:
    found = KINDS[kind.name]  # type: ignore[attr-defined]
    assert issubclass(load(found.settings), CollectorSettings)
    assert (found.start != "") == (found.where != "http")
    for reference in filter(None, (found.start, found.sample)):
        assert callable(load(reference))
    names = {"url", "name", "sample", "key"} | set(load(found.settings).__struct_fields__)
    names |= {"host", "port", "transport"} if "listen" in names else set()
    assert set(FILLED.findall(found.example)) <= names


def test_an_example_says_where_this_collector_listens() -> None:
    found = read('type = "syslog"\ntopic = "logs"\nlisten = ["tcp://127.0.0.1:7000"]')
    assert isinstance(found, Definition)
    assert example_text(found, "http://here", None) == "logger --server 127.0.0.1 --port 7000 --tcp hello"


def test_a_secret_may_stay_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret")
    assert (secret("plain"), secret("env:SHOP_KEY")) == ("plain", "s3cret")
    with pytest.raises(ConfigError, match="the environment has no `NOT_THERE`"):
        secret("env:NOT_THERE")
