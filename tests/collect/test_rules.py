"""Rules of a collector: what is added, checked and hidden before anything is stored."""

from __future__ import annotations

import hashlib
import hmac
import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.clock import ManualClock, SystemClock
from headrace.collect.base import RawEvents
from headrace.collect.gate import Arrival
from headrace.collect.redrive import Order, Redriver, Report
from headrace.collect.rules.fields import GONE, Spellings
from headrace.collect.rules.fields import Path as FieldPath
from headrace.config import CollectSettings
from headrace.errors import Overloaded, UsageError
from headrace.log.base import TopicSpec
from headrace.log.codecs.json_codec import Unreadable
from headrace.log.dead_letters import DEAD_LETTERS_TOPIC
from headrace.types import BIGINT, BOOLEAN, DOUBLE, TIMESTAMP, VARCHAR, Column, Decimal
from tests.collect.gating import Gated, gated

PEOPLE = TopicSpec(
    "people",
    key=(Column("ID", VARCHAR),),
    value=(
        Column("EMAIL", VARCHAR),
        Column("AGE", BIGINT),
        Column("SCORE", DOUBLE),
        Column("PRICE", Decimal(10, 2)),
        Column("MEMBER", BOOLEAN),
        Column("SEEN", TIMESTAMP),
        Column("IP", VARCHAR),
    ),
)
NOON = 1_700_000_000_123


@pytest.fixture
def people(tmp_path: Path) -> Iterator[Gated]:
    with gated(tmp_path, topic=PEOPLE, clock=ManualClock(NOON)) as found:
        yield found


def with_rules(people: Gated, rules: str) -> None:
    people.write("web", 'type = "http"\ntopic = "people"\n' + rules)
    assert people.gates.problems == ()


def stored(people: Gated) -> list[dict[str, Any]]:
    """Columns that are not null, in small letters, with the undeclared fields."""
    found = []
    for row in people.rows("people"):
        known = {name.lower(): value for name, value in row.items() if name in ("$rest",) or not name.startswith("$")}
        rest = json.loads(known.pop("$rest") or "{}")
        found.append({name: value for name, value in known.items() if value is not None} | rest)
    return [{name: value for name, value in one.items() if name not in ("offset", "partition")} for one in found]


def letters(people: Gated) -> list[tuple[str, bytes]]:
    return [(row["REASON"], row["PAYLOAD"]) for row in people.rows(DEAD_LETTERS_TOPIC)]


# Enrichment


def test_an_event_is_told_when_and_from_where_it_came_and_a_client_cannot_say_otherwise(people: Gated) -> None:
    with_rules(
        people,
        """
[enrich]
arrival_time = "arrived"
address = "ip"
user_agent = "context.agent"
collector = "via"
fields = { site = "shop", revision = 3 }
""",
    )
    people.take(
        "web",
        {"id": "1", "IP": "6.6.6.6", "Via": "elsewhere", "context": {"Agent": "evil", "os": "x"}, "arrived": 0},
        address="192.0.2.7",
        user_agent="curl/8",
    )
    assert stored(people) == [
        {
            "id": "1",
            "ip": "192.0.2.7",
            "arrived": "2023-11-14T22:13:20.123Z",
            "context": {"os": "x", "agent": "curl/8"},
            "via": "web",
            "site": "shop",
            "revision": 3,
        }
    ]


@pytest.mark.parametrize(
    ("address", "forwarded", "believed"),
    [
        ("192.0.2.7", "6.6.6.6", "192.0.2.7"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "6.6.6.6, 192.0.2.7, 10.3.3.3", "192.0.2.7"),
        ("10.0.0.1", "192.0.2.7:4711", "192.0.2.7"),
        ("10.0.0.1", "[2001:db8::1]:443", "2001:db8::1"),
        ("::ffff:10.0.0.1", "192.0.2.7", "192.0.2.7"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
    ],
)
def test_only_declared_proxies_are_believed(people: Gated, address: str, forwarded: str, believed: str) -> None:
    with_rules(people, '[enrich]\naddress = "ip"\nproxies = ["10.0.0.0/8"]\n')
    people.take("web", {"id": "1"}, address=address, forwarded=forwarded)
    assert stored(people) == [{"id": "1", "ip": believed}]


def test_an_address_may_be_hashed_in_dead_letters_too(people: Gated, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HASH_KEY", "k")
    with_rules(people, '[enrich]\naddress = "ip"\naddress_as = "hash"\n[privacy]\nkey = "env:HASH_KEY"\n')
    people.take("web", {"id": "1"}, {"age": "x"}, address="192.0.2.7")
    digest = hmac.new(b"k", b"192.0.2.7", hashlib.sha256).hexdigest()
    assert stored(people) == [{"id": "1", "ip": digest}]
    [letter] = people.rows(DEAD_LETTERS_TOPIC)
    assert letter["SOURCE"] == f"http web {digest}"
    assert b"192.0.2.7" not in letter["PAYLOAD"]


def test_a_letter_does_not_tell_an_address_that_is_hidden_as_a_field(people: Gated) -> None:
    with_rules(people, '[enrich]\naddress = "ip"\n[privacy]\ndrop = ["IP"]\n')
    people.take("web", {"age": "x"}, address="192.0.2.7")
    assert [letter["SOURCE"] for letter in people.rows(DEAD_LETTERS_TOPIC)] == ["http web"]


# Validation


def test_ranges_lengths_patterns_and_choices_are_checked_and_the_reasons_kept(people: Gated) -> None:
    with_rules(
        people,
        """
[validate]
required = ["id"]
[validate.fields.age]
min = 0
max = 150
[validate.fields.email]
pattern = "^[^@]+@[^@]+$"
max_length = 20
[validate.fields."plan.name"]
type = "string"
one_of = ["free", "paid"]
""",
    )
    outcome = people.take(
        "web",
        {"id": "1", "age": 30, "email": "a@b", "plan": {"name": "paid"}},
        {"age": 30},
        {"id": None},
        {"id": "2", "age": 151},
        {"id": "3", "age": -1},
        {"id": "4", "email": "nobody"},
        {"id": "5", "email": "a@" + "b" * 20},
        {"id": "6", "plan": [{"name": "free"}, {"Name": "gold"}]},
        {"id": "7", "plan": {"name": 3}},
    )
    assert outcome.accepted == 1
    assert [(one.index, one.reason) for one in outcome.rejected] == [
        (1, "`id` is required"),
        (2, "`id` is required"),
        (3, "`age` must be at most 150, got 151"),
        (4, "`age` must be at least 0, got -1"),
        (5, "`email` does not match `^[^@]+@[^@]+$`"),
        (6, '`email` must be at most 20 long, got "a@bbbbbbbbbbbbbbbbbbbb"'),
        (7, '`plan.name` must be one of "free", "paid", got "gold"'),
        (8, "`plan.name` must be a string, got 3"),
    ]
    assert letters(people)[2] == ("`age` must be at most 150, got 151", b'{"id":"2","age":151}')


def test_text_is_read_as_a_number_only_where_it_is_said(people: Gated) -> None:
    event = {"id": 7, "age": "41", "score": "1.5", "member": "yes", "seen": "1700000000000", "n": "3"}
    with_rules(people, "")
    assert people.take("web", event).accepted == 0
    with_rules(
        people,
        '[validate]\ncoerce = ["id", "AGE", "score", "member", "seen", "n"]\nfields = {n = {type = "integer"}}\n',
    )
    assert people.take("web", event, {"id": "8", "age": "forty"}, {"id": "9", "age": ""}).accepted == 2
    first, second = stored(people)
    assert (first.pop("seen").timestamp(), first) == (
        1_700_000_000.0,
        {"id": "7", "age": 41, "score": 1.5, "member": True, "n": 3},
    )
    assert second == {"id": "9"}


@pytest.mark.parametrize(
    ("unknown", "accepted", "kept"),
    [("keep", 2, [{"id": "1", "x": 1}, {"id": "2"}]), ("drop", 2, [{"id": "1"}, {"id": "2"}]), ("refuse", 1, None)],
)
def test_unknown_fields_are_kept_dropped_or_refused(
    people: Gated, unknown: str, accepted: int, kept: list[dict[str, Any]] | None
) -> None:
    with_rules(people, f'[validate]\nunknown = "{unknown}"\n')
    outcome = people.take("web", {"id": "1", "x": 1}, {"$id": "two", "ID": "2"})
    assert outcome.accepted == accepted
    assert stored(people) == (kept if kept is not None else [{"id": "2"}])
    if unknown == "refuse":
        assert outcome.rejected[0].reason == 'the topic has no column for "x"'


def test_what_the_rules_leave_alone_is_kept_to_the_last_digit(people: Gated) -> None:
    with_rules(people, '[enrich.fields]\nsite = "shop"\n')
    gate = people.gates.named("web")
    body = b'{"id": "1", "price": 12345678.90, "big": 12345678901234567890123, "precise": 1.000, "a": [1.10]}'
    assert gate.collect(RawEvents("people", body), Arrival()).result(30).accepted == 1
    [row] = people.rows("people")
    assert str(row["PRICE"]) == "12345678.90"
    assert row["$rest"] == '{"big":12345678901234567890123,"precise":1.000,"a":[1.10],"site":"shop"}'


# Privacy

HIDDEN = """
[privacy]
drop = ["password", "card.number"]
hash = ["email", "friends.email"]
truncate = { ip = "network", note = 3 }
key = "env:HASH_KEY"
"""


def digest(text: str) -> str:
    return hmac.new(b"k", text.encode(), hashlib.sha256).hexdigest()


@pytest.fixture
def private(people: Gated, monkeypatch: pytest.MonkeyPatch) -> Gated:
    monkeypatch.setenv("HASH_KEY", "k")
    with_rules(people, HIDDEN)
    return people


def test_private_fields_are_dropped_hashed_and_cut_wherever_they_are(private: Gated) -> None:
    private.take(
        "web",
        {
            "id": "1",
            "EMail": "you@there",
            "PASSWORD": "hush",
            "card": {"Number": "4111", "type": "visa"},
            "card.number": "4112",
            "friends": [{"email": "a"}, {"email": 5, "n": 1}, [{"email": "deep"}], "nobody"],
            "ip": "192.0.2.77",
            "note": "longer",
        },
    )
    assert stored(private) == [
        {
            "id": "1",
            "email": digest("you@there"),
            "card": {"type": "visa"},
            "friends": [{"email": digest("a")}, {"email": digest("5"), "n": 1}, [{"email": digest("deep")}], "nobody"],
            "ip": "192.0.2.0",
            "note": "lon",
        }
    ]


def everything(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


@pytest.mark.parametrize(
    "event",
    [
        {"id": "1", "password": "hush-hush", "age": "no number"},
        {"id": 5, "email": "hush-hush"},
        {"id": "1", "friends": {"email": "hush-hush"}, "age": 1.5},
        {"id": "1", "card": {"number": "hush-hush"}, "seen": "never"},
        {"id": "1", "email": "hush-hush", "Email": "hush-hush"},
        ["hush-hush"],
        "hush-hush",
        Unreadable("has a strange `hush-hush`"),
    ],
)
def test_a_rejected_event_tells_no_more_than_a_stored_one(private: Gated, event: Any) -> None:
    gate = private.gates.named("web")
    if isinstance(event, Unreadable):
        outcome = private.take("web", event)
    else:
        body = json.dumps([event]).encode()
        outcome = gate.collect(RawEvents("people", body), Arrival(address="192.0.2.7")).result(30)
    assert len(outcome.rejected) == 1
    private.log.close()
    found = everything(private.folder / "log")
    assert b"hush-hush" not in found
    assert b"192.0.2.7" not in found


def test_a_body_that_is_no_json_is_withheld_or_kept_as_the_file_says(private: Gated) -> None:
    broken = RawEvents("people", b'{"email": "hush-hush", ')
    [rejection] = private.gates.named("web").collect(broken, Arrival()).result(30).rejected
    assert rejection.reason.endswith("(its 23 bytes are withheld: [privacy])")
    with_rules(private, HIDDEN + 'unreadable = "keep"\n')
    private.gates.named("web").collect(broken, Arrival()).result(30)
    assert [payload for _, payload in letters(private)] == [b"", broken.body]


@pytest.mark.parametrize(
    "body",
    [
        b'{"id": "1", "card": {"number": "hush-hush"}, "card": {"x": 1}}',
        b'{"id": "1", "card": {"number": "hush-hush", "number": "hush-hush"}}',
        b'{"id": "1", "a": {"card": {"number": "hush-hush"}, "card": {"x": 1}}}',
        b'{"id": "1", "friends": [{"email": "hush-hush", "email": null}, [{"Email": "hush-hush", "Email": null}]]}',
        b'{"id": "1", "password": "hush-hush", "\\u0070assword": "hush-hush"}',
    ],
)
@pytest.mark.parametrize("fits", [True, False])
def test_a_field_that_is_said_twice_is_hidden_twice(private: Gated, body: bytes, fits: bool) -> None:
    """Whoever reads JSON takes the last one: what was sent before it is in the text alone."""
    with_rules(private, HIDDEN.replace('"card.number"', '"card.number", "a.card.number"'))
    body = body if fits else body.replace(b'"id": "1"', b'"id": 7')
    outcome = private.gates.named("web").collect(RawEvents("people", body), Arrival()).result(30)
    assert outcome.accepted == fits
    private.log.close()
    assert b"hush-hush" not in everything(private.folder / "log")


def test_what_is_not_hidden_keeps_its_digits_beside_what_is(private: Gated) -> None:
    body = b'{"id": "1", "password": "x", "big": 12345678901234567890123, "precise": 1.000, "a": [1.10, {"b": 1e400}]}'
    assert private.gates.named("web").collect(RawEvents("people", body), Arrival()).result(30).accepted == 1
    [row] = private.rows("people")
    assert row["$rest"] == '{"big":12345678901234567890123,"precise":1.000,"a":[1.10,{"b":1E+400}]}'


def test_a_reason_that_quotes_something_with_quotes_in_it_quotes_nothing(private: Gated) -> None:
    [rejection] = private.take("web", Unreadable("has a value that is no number: `1`hush-hush`2`")).rejected
    assert "hush-hush" not in rejection.reason


def test_a_quota_by_a_private_field_does_not_say_its_value(private: Gated) -> None:
    with_rules(private, HIDDEN + '[quota]\nkey_field = "email"\nkey_events_per_second = 1\nburst_seconds = 1\n')
    private.take("web", {"id": "1", "email": "hush-hush"})
    with pytest.raises(Overloaded) as refusal:
        private.take("web", {"id": "1", "email": "hush-hush"})
    assert "hush-hush" not in str(refusal.value)
    assert "hush-hush" not in str(private.gates.named("web").counters.status())


def test_a_check_does_not_show_what_is_hidden(private: Gated) -> None:
    with_rules(private, HIDDEN + "[validate.fields.email]\nmax_length = 3\n[validate.fields.friends]\nmax_length = 0\n")
    outcome = private.take("web", {"id": "1", "email": "you@there"}, {"id": "1", "friends": [{"email": "you@there"}]})
    assert [one.reason for one in outcome.rejected] == [
        "`email` must be at most 3 long",
        "`friends` must be at most 0 long",
    ]


def test_a_mended_letter_keeps_its_id(private: Gated) -> None:
    private.take("web", {"$id": "first", "id": "1", "age": "x", "email": "you"})
    [letter] = private.rows(DEAD_LETTERS_TOPIC)
    assert letter["EVENT_ID"] == "first"
    assert json.loads(letter["PAYLOAD"]) == {"$id": "first", "id": "1", "age": "x", "email": digest("you")}


def redriven(people: Gated, **values: str) -> Report:
    redriver = Redriver(people.log, SystemClock(), CollectSettings(), people.gates.again)
    return redriver.redrive(Order("people", values=values), {})


@pytest.mark.parametrize("unreadable", ["withhold", "keep"])
def test_a_letter_that_is_written_anew_is_hidden_like_any_event(private: Gated, unreadable: str) -> None:
    with_rules(private, HIDDEN + f'unreadable = "{unreadable}"\n')
    private.gates.named("web").collect(RawEvents("people", b'{"id": "1", '), Arrival()).result(30)
    report = redriven(private, payload="""'{"id": "1", "email": "you", "password": "hush", "ip": "192.0.2.77"}'""")
    assert report.accepted == 1
    assert report.samples[0].event is not None
    assert b"hush" not in report.samples[0].event
    assert stored(private) == [{"id": "1", "email": digest("you"), "ip": "192.0.2.0"}]


def test_bytes_that_were_kept_and_fit_today_are_hidden(private: Gated) -> None:
    """Too large on the day they came, so nobody looked into them."""
    body = b'{"id": "1", "email": "you", "x": "%s"}' % (b"." * 1_000_000)
    with_rules(private, HIDDEN + 'unreadable = "keep"\n[validate]\nunknown = "drop"\n')
    large = RawEvents("people", body + b" " * 100_000)
    assert len(private.gates.named("web").collect(large, Arrival()).result(30).rejected) == 1
    larger = CollectSettings(max_event_bytes=10_000_000)
    Redriver(private.log, SystemClock(), larger, private.gates.again).redrive(Order("people"), {})
    assert stored(private)[0]["email"] == digest("you")


def test_what_a_letter_hides_already_is_not_hidden_again_and_what_is_set_is(private: Gated) -> None:
    private.take("web", {"id": "1", "age": "x", "email": "you"}, {"id": "2", "age": "x", "email": "me", "ip": "no"})
    assert redriven(private, age="7").accepted == 2
    assert [row["email"] for row in stored(private)] == [digest("you"), digest("me")]
    private.take("web", {"id": "3", "age": "x", "email": "you"})
    assert redriven(private, age="7", email="'they'").accepted == 1
    assert stored(private)[2]["email"] == digest("they")


def test_a_letter_from_before_there_was_a_collector_passes_the_one_there_is(people: Gated) -> None:
    raw = RawEvents("people", b'{"id": "1", "age": "x", "password": "hush"}', source="http 192.0.2.7")
    people.gates.collect(raw, Arrival()).result(30)
    with_rules(people, '[privacy]\ndrop = ["password"]\n')
    assert redriven(people, age="7").accepted == 1
    assert stored(people) == [{"id": "1", "age": 7}]


def test_the_projects_own_key_is_made_once_and_only_its_user_reads_it(people: Gated) -> None:
    with_rules(people, '[privacy]\nhash = ["email"]\n')
    people.take("web", {"email": "you"})
    file = people.folder / ".headrace" / "secrets" / "privacy"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with_rules(people, '# again\n[privacy]\nhash = ["email"]\n')
    people.take("web", {"email": "you"})
    first, second = stored(people)
    assert first == second
    assert first["email"] == hmac.new(file.read_bytes(), b"you", hashlib.sha256).hexdigest()


def test_a_key_that_is_not_there_is_a_problem_of_the_file(people: Gated) -> None:
    people.write("web", 'type = "http"\ntopic = "people"\n[privacy]\nhash = ["email"]\nkey = "env:NOT_THERE"\n')
    assert [problem.message for problem in people.gates.problems] == ["the environment has no `NOT_THERE`"]
    assert people.gates.all() == []


def test_bytes_cannot_have_rules(people: Gated) -> None:
    with_rules(people, '[enrich]\naddress = "ip"\n')
    with pytest.raises(UsageError, match="rules about fields"):
        people.gates.named("web").collect(RawEvents("people", b"x", form="bytes"), Arrival())


# Paths

NAMES = st.sampled_from(["a", "A", "b", "a.b", "c"])
VALUES = st.recursive(
    st.integers() | st.text(max_size=3) | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(NAMES, VALUES, max_size=4), st.sampled_from(["a", "a.b", "a.b.c", "c"]))
def test_what_is_removed_at_a_path_is_not_found_there_and_the_event_that_came_is_not_touched(
    event: dict[str, Any], name: str
) -> None:
    path, before = FieldPath(name, Spellings()), json.dumps(event)
    removed = path.edited(event, lambda value: GONE)
    assert path.found(removed) == []
    assert (removed is event) == (path.found(event) == [])
    assert path.found(path.put(event, "new")) == ["new"]
    assert json.dumps(event) == before


def test_what_lies_too_deep_to_look_at_is_taken_away() -> None:
    deep: Any = {"b": "secret"}
    for _ in range(200):
        deep = [deep]
    made = FieldPath("a.b", Spellings()).edited({"a": deep}, lambda value: GONE)
    assert "secret" not in json.dumps(made)
