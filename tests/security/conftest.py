"""Two servers for all tests of this folder: one without keys, one with a key of each role and some with scopes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.running import PAGEVIEWS, Running, running_server

HITS = "CREATE STREAM hits (id VARCHAR KEY) WITH (KAFKA_TOPIC='hits', VALUE_FORMAT='JSON', PARTITIONS=1);"

KEYS = {role: f"{role}-key-0123456789" for role in ("read", "write", "admin")}
TOML = "".join(f'[[auth.keys]]\nkey = "{key}"\nrole = "{role}"\nname = "{role}er"\n' for role, key in KEYS.items())

VAULT = """
CREATE TABLE vault (id VARCHAR PRIMARY KEY, hidden_word VARCHAR)
  WITH (KAFKA_TOPIC='vault', VALUE_FORMAT='JSON', PARTITIONS=1);
"""
LIMITED = {name: f"limited-{name}-0123456789" for name in ("read", "write", "all")}
"""Keys for the topics `page*` and `reply` and the view `users`; and one for all there are."""
SCOPES = dict.fromkeys(("read", "write"), 'topics = ["page*", "reply"]\nviews = ["Us?rs"]') | {
    "all": 'topics = ["*"]\nviews = ["*"]'
}
LIMITED_TOML = "".join(
    f'[[auth.keys]]\nkey = "{key}"\nrole = "{"write" if name == "all" else name}"\n'
    f'name = "limited-{name}"\n{SCOPES[name]}\n'
    for name, key in LIMITED.items()
)


@pytest.fixture(scope="session")
def keyless(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With three trackers: for its own user, for everybody, and for those with a key."""
    folder = tmp_path_factory.mktemp("keyless")
    (folder / "collectors").mkdir()
    (folder / "collectors" / "own.toml").write_text('type = "snowplow"\ntopic = "hits"\n')
    (folder / "collectors" / "open.toml").write_text('type = "segment"\ntopic = "hits"\npublic = true\n')
    (folder / "collectors" / "keyed.toml").write_text('type = "google"\ntopic = "hits"\nkeys = ["k-1"]\n')
    with running_server(folder, sql=f"{PAGEVIEWS}\n{HITS}") as running:
        yield running


@pytest.fixture(scope="session")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running_server(tmp_path_factory.mktemp("keyed"), TOML + LIMITED_TOML, f"{PAGEVIEWS}{HITS}{VAULT}") as running:
        yield running
