"""Syslog messages, as the standards show them, as real senders write them, and as nobody should."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.collect.syslog.parse import Reading, read_messages, read_text
from headrace.log.codecs.json_codec import Unreadable

NOW = int(datetime(2026, 11, 16, 12, tzinfo=UTC).timestamp() * 1000)
READING = Reading(now_ms=NOW, sender="10.1.2.3")


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def one(message: str, reading: Reading = READING) -> dict[str, Any]:
    """One message, read by itself and with others: the same."""
    [event] = read_messages([message.encode()], reading).objects()
    assert isinstance(event, dict), event
    if "\n" not in message:
        together = read_text(f"{message}\n", reading)
        assert together is not None
        assert together.objects() == [event]
    event.pop("$time", None)
    return event


def test_rfc_5424() -> None:
    assert one("<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \ufeff'su root' failed") == {
        "facility": "auth",
        "severity": "crit",
        "time": ms("2003-10-11T22:14:15.003Z"),
        "host": "mymachine.example.com",
        "app": "su",
        "msgid": "ID47",
        "message": "'su root' failed",
    }
    assert one("<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time.")["time"] == ms(
        "2003-08-24T05:14:15-07:00"
    )
    assert one("<0>1 - - - - - -") == {"facility": "kern", "severity": "emerg", "host": "10.1.2.3"}
    assert one("<0>1 2026-11-16T10:00:00.123456789Z h - - - - nanoseconds")["time"] == ms("2026-11-16T10:00:00.123Z")


def test_structured_data() -> None:
    text = r'[exampleSDID@32473 iut="3" eventSource="App[1\] says \"hi\" \\o/"][examplePriority@32473 class="high"][x]'
    assert one(f"<165>1 2003-10-11T22:14:15.003Z h app - ID47 {text} body")["structured_data"] == {
        "exampleSDID@32473": {"iut": "3", "eventSource": 'App[1] says "hi" \\o/'},
        "examplePriority@32473": {"class": "high"},
        "x": {},
    }


def test_rfc_3164_and_what_real_programs_make_of_it() -> None:
    assert one("<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8") == {
        "facility": "auth",
        "severity": "crit",
        "time": ms("2026-10-11T22:14:15Z"),
        "host": "mymachine",
        "app": "su",
        "message": "'su root' failed for lonvick on /dev/pts/8",
    }
    with_pid = one("<13>Nov  6 02:03:04 web-1 sshd[4711]: Accepted publickey")
    assert (with_pid["app"], with_pid["procid"], with_pid["host"]) == ("sshd", "4711", "web-1")
    # rsyslog's own format, with whole times.
    assert one("<13>2026-11-16T09:00:00.5+01:00 web-1 cron: run")["time"] == ms("2026-11-16T08:00:00.500Z")
    # Python's SysLogHandler: no time, no host, a NUL at the end.
    assert one("<14>plain words: all of them\0") == {
        "facility": "user",
        "severity": "info",
        "host": "10.1.2.3",
        "message": "plain words: all of them",
    }
    # A program that leaves out its host.
    local = one("<13>Nov 16 11:59:59 postfix/smtpd[1]: connect")
    assert (local["host"], local["app"], local["procid"]) == ("10.1.2.3", "postfix/smtpd", "1")
    assert one("<13>Feb 30 11:59:59 h a: no such day").get("time") is None


@pytest.mark.parametrize(
    ("message", "time", "host", "app", "text"),
    [
        ("<189>57: *Mar  1 18:46:11.123: %SYS-5-CONFIG_I: from con", None, "10.1.2.3", "%SYS-5-CONFIG_I", "from con"),
        ("<189>57: .Nov 16 10:00:00.5: %A-1-B: x", "2026-11-16T09:00:00.500Z", "10.1.2.3", "%A-1-B", "x"),
        (
            "<187>8: edge1: Nov  6 10:00:00 UTC: %LINK-3-UPDOWN: x: y",
            "2026-11-06T10:00:00Z",
            "edge1",
            "%LINK-3-UPDOWN",
            "x: y",
        ),
        ("<166>Nov 16 2024 10:00:00 FW : %ASA-6-302013: Built", "2024-11-16T09:00:00Z", "FW", "%ASA-6-302013", "Built"),
        (
            "<166>Nov 16 2024 10:00:00: %ASA-6-302013: Built",
            "2024-11-16T09:00:00Z",
            "10.1.2.3",
            "%ASA-6-302013",
            "Built",
        ),
        ("<13>Nov 16 10:00:00 web app: %DEBUG: x", "2026-11-16T09:00:00Z", "web", "app", "%DEBUG: x"),
        ("<13>Feb 30 2024 10:00:00: %A-1-B: no such day", None, "10.1.2.3", "%A-1-B", "no such day"),
    ],
)
def test_what_ciscos_devices_send(message: str, time: str | None, host: str, app: str, text: str) -> None:
    reading = Reading(now_ms=NOW, sender="10.1.2.3", zone=ZoneInfo("Europe/Berlin"))
    [event] = read_messages([message.encode()], reading).objects()
    assert isinstance(event, dict)
    assert (event["host"], event["app"], event["message"]) == (host, app, text)
    assert event.get("time") == (None if time is None else ms(time))


def test_the_year_and_the_zone_are_guessed_as_the_docs_say() -> None:
    def at(text: str, now: str, zone: str = "UTC") -> int | None:
        reading = Reading(now_ms=ms(now), zone=ZoneInfo(zone))
        time: int | None = one(f"<13>{text} h a: m", reading).get("time")
        return time

    assert at("Dec 31 23:59:59", "2027-01-01T00:00:01Z") == ms("2026-12-31T23:59:59Z")
    assert at("Jan  1 00:00:01", "2026-12-31T23:59:58Z") == ms("2027-01-01T00:00:01Z")
    assert at("Feb 29 12:00:00", "2028-03-01T00:00:00Z") == ms("2028-02-29T12:00:00Z")
    assert at("Feb 29 12:00:00", "2026-03-01T00:00:00Z") is None
    assert at("Jun  1 12:00:00", "2026-11-16T00:00:00Z", "Europe/Berlin") == ms("2026-06-01T10:00:00Z")
    assert at("Jun 30 23:59:60", "2026-11-16T00:00:00Z") == ms("2026-06-30T23:59:59Z")


def test_numbers_in_place_of_names_and_the_message_as_it_came() -> None:
    event = one("<165>1 - h a - - - m", Reading(NOW, numeric=True, raw=True))
    assert (event["facility"], event["severity"], event["raw"]) == (20, 5, "<165>1 - h a - - - m")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"no priority", "does not begin with a priority, as in `<34>`"),
        (b"<192>1 - - - - - -", "has the priority 192: the highest is 191"),
        (b"<034>x", "begins with a priority that is none: `<034>x`"),
        (b"<34", "begins with a priority that is none: `<34`"),
        (b"<34>1 yesterday h a p m - x", "has a time that is none: `yesterday`"),
        (b"<34>1 2026-13-01T00:00:00Z h a p m - x", "has a time that is none: `2026-13-01T00:00:00Z`"),
        (b"<34>1 - h a p m [broken x", "looks like RFC 5424, but is not: after `<34>1 ` come time, host, app, procid"),
        (b'<34>1 - h a p m [id x="1" y] m', "has structured data that is none: `[id x="),
        (b"<34>\xff\xfe", "is not UTF-8"),
    ],
)
def test_what_is_no_message_says_why_and_spoils_no_other(message: bytes, reason: str) -> None:
    good = b"<13>1 - h a - - - good"
    columns = read_messages([good, message, good], READING)
    first, second, third = columns.objects()
    assert first["message"] == third["message"] == "good"
    assert isinstance(second, Unreadable)
    assert second.reason.startswith(reason)
    assert columns.originals(1) == message


@pytest.mark.parametrize(
    ("year", "zone"), [("0001", "Europe/Berlin"), ("9999", "America/New_York"), ("0001", "UTC"), ("2024", "Asia/Tokyo")]
)
def test_a_year_at_the_end_of_the_calendar_spoils_no_other(year: str, zone: str) -> None:
    edge = "Dec 31" if year == "9999" else "Jan  1"
    reading = Reading(now_ms=NOW, sender="10.1.2.3", zone=ZoneInfo(zone))
    good, odd = b"<13>1 - h a - - - good", f"<13>{edge} {year} 00:00:00: %A-1-B: x".encode()
    first, second = read_messages([good, odd], reading).objects()
    assert first["message"] == "good"
    assert isinstance(second, Unreadable) or second["message"]


printable = st.text(st.characters(exclude_characters="\n\0", exclude_categories=["Cs"]), max_size=30)
lines = st.lists(
    st.one_of(
        st.builds("<{}>1 - {} {} - - - {}".format, st.integers(0, 191), st.just("h"), st.just("app"), printable),
        st.builds("<{}>Nov 16 10:00:00 {} {}: {}".format, st.integers(0, 191), st.just("h"), st.just("app"), printable),
        st.builds("<{}>7: Nov 16 10:00:00: %A-1-B: {}".format, st.integers(0, 191), printable),
        st.builds("<{}>{}".format, st.integers(0, 200), printable),
        printable,
    ),
    min_size=1,
    max_size=6,
)


@given(lines)
def test_together_is_as_each_by_itself(messages: list[str]) -> None:
    each = read_messages([message.encode() for message in messages], READING)
    together = read_text("".join(f"{message}\n" for message in messages), READING)
    if together is not None:
        assert not each.unreadable
        assert together.objects() == each.objects()
