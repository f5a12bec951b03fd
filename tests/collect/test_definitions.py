"""`collectors/*.toml`: what is read, and what somebody is told about a file that is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from headrace.collect.definitions import CollectorSettings, Definition, read_definition
from headrace.collect.kinds import KINDS, load
from headrace.collect.samples import FILLED, example_text
from headrace.errors import ConfigError
from headrace.secrecy import shown_settings
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
    names = {"url", "name", "file", "sample", "key"} | set(load(found.settings).__struct_fields__)
    names |= {"host", "port", "transport"} if "listen" in names else set()
    assert set(FILLED.findall(found.example)) <= names


def test_an_example_says_where_this_collector_listens() -> None:
    found = read('type = "syslog"\ntopic = "logs"\nlisten = ["tcp://127.0.0.1:7000"]')
    assert isinstance(found, Definition)
    assert example_text(found, "http://here", None) == "logger --server 127.0.0.1 --port 7000 --tcp hello"


FOR_ALL_TO_SEE = {"key_field", "key_events_per_second", "tls_key", "cookie", "cookie_days", "cookie_domain"}
"""Settings with suspicious names that tell nothing: fields, rates, names of files and of a cookie."""


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_what_sounds_like_a_secret_is_declared_as_one(kind: object) -> None:
    def undeclared(struct: type[msgspec.Struct]) -> list[str]:
        found: list[str] = []
        for field in msgspec.structs.fields(struct):
            if isinstance(field.default, msgspec.Struct):
                found += undeclared(type(field.default))
            elif any(word in field.name for word in ("key", "secret", "password", "token", "cookie", "headers", "url")):
                found += [] if "shown" in str(field.type) else [field.name]
        return found

    names = undeclared(load(KINDS[kind.name].settings))  # type: ignore[attr-defined]
    assert set(names) <= FOR_ALL_TO_SEE | {"keep_headers"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            'type = "poll"\ntopic = "t"\nurl = "https://ann:hush@shop.example/x?page=2&api_key=hush"\nid = "id"\n'
            'headers = { Authorization = "Bearer hush", Cookie = "s=hush", X-Key = "env:SHOP_KEY" }',
            {
                "url": "https://…@shop.example/x?page=…&api_key=…",
                "headers": {"Authorization": "…", "Cookie": "…", "X-Key": "env:SHOP_KEY"},
            },
        ),
        ('type = "segment"\ntopic = "t"\nkeys = ["hush", "env:APP_KEY"]', {"keys": ["…", "env:APP_KEY"]}),
        ('type = "webhook"\ntopic = "t"\nsignature = "github"\nsecrets = ["hush"]', {"secrets": ["…"]}),
        ('type = "mqtt"\ntopic = "t"\ntopics = ["a"]\npassword = "hush"', {"password": "…"}),
        (
            'type = "kafka"\ntopic = "t"\nsource = "s"\nbootstrap = "b:9092"\nconf = { "sasl.password" = "hush" }',
            {"conf": {"sasl.password": "…"}, "bootstrap": "b:9092"},
        ),
        (
            'type = "http"\ntopic = "t"\n[privacy]\nhash = ["a"]\nkey = "hush"\n'
            '[quota]\nkey_field = "device"\nkey_events_per_second = 1',
            {"quota": {"key_field": "device", "key_events_per_second": 1.0}, "privacy": {"hash": ["a"], "key": "…"}},
        ),
        (
            'type = "agent"\n[sources.a]\ntype = "avro"\nchannels = "c"\nbind = "127.0.0.1"\nport = 1\n'
            'keystore-password = "hush"\n[channels.c]\ntype = "memory"\n[sinks.k]\ntype = "logger"\nchannel = "c"',
            {"channels": {"c": {"type": "memory"}}},
        ),
    ],
)
def test_settings_are_shown_without_secrets(text: str, shown: dict[str, object]) -> None:
    found = read(text)
    assert isinstance(found, Definition), found
    settings = shown_settings(found.settings)
    assert {name: settings[name] for name in shown} == shown
    assert "hush" not in str(settings)
    assert "hush" not in example_text(found, "http://here", None)


def test_a_file_that_is_wrong_does_not_tell_its_secrets() -> None:
    assert "hush" not in str(read('type = "poll"\ntopic = "t"\nurl = "ftp://ann:hush@shop.example?key=hush"'))
    assert "hush" not in str(read('type = "mqtt"\ntopic = "t"\nurl = "ann:hush@shop.example"'))


def test_the_secret_of_a_webhook_is_no_header_to_keep() -> None:
    text = 'type = "webhook"\ntopic = "t"\nsignature = "token"\nsecrets = ["s"]\nkeep_headers = ["x-signature"]'
    assert "web.toml:5: `X-Signature` is the secret itself" in str(read(text))


def test_no_process_of_ours_writes_the_addresses_it_asks() -> None:
    code = (
        "import logging; from headrace.logs import start_logging; start_logging();"
        "logging.getLogger('httpx').info('HTTP Request: GET http://ann:hush@shop.example');"
        "logging.getLogger('headrace').info('hello')"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    assert "hello" in said
    assert "hush" not in said


def test_a_secret_may_stay_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_KEY", "s3cret")
    assert (secret("plain"), secret("env:SHOP_KEY")) == ("plain", "s3cret")
    with pytest.raises(ConfigError, match="the environment has no `NOT_THERE`"):
        secret("env:NOT_THERE")
