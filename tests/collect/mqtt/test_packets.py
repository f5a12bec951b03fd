"""MQTT on the wire, and what topics say."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.collect.mqtt import packets
from headrace.collect.mqtt.packets import Decoder, Malformed, read_message, read_number
from headrace.collect.mqtt.subscribe import MqttSettings, read_event
from headrace.collect.mqtt.topics import read_pattern
from headrace.errors import ConfigError

topics = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=20)
messages = st.lists(
    st.tuples(topics, st.binary(max_size=300), st.sampled_from([0, 1, 2]), st.integers(1, 65_535), st.booleans())
)


@given(messages, st.integers(1, 50))
def test_however_it_is_cut_the_same_messages_come(sent: list[tuple[str, bytes, int, int, bool]], step: int) -> None:
    stream = b"".join(packets.publish(*one) for one in sent)
    decoder = Decoder(1000)
    found = [packet for at in range(0, len(stream), step) for packet in decoder.feed(stream[at : at + step])]
    read = [read_message(packet) for packet in found]
    assert [(one.topic.decode(), one.payload, one.qos, one.again) for one in read] == [
        (topic, payload, qos, again) for topic, payload, qos, _, again in sent
    ]
    assert [one.number for one in read] == [number if qos else 0 for _, _, qos, number, _ in sent]


@given(st.integers(1, 100_000))
def test_one_too_large_is_cut_off_and_the_next_is_read(step: int) -> None:
    stream = packets.publish("t", b"x" * 300_000, 1, 7) + packets.answer(packets.PUBREL, 9)
    decoder = Decoder(10)
    large, after = [one for at in range(0, len(stream), step) for one in decoder.feed(stream[at : at + step])]
    message = read_message(large)
    assert (message.number, message.size, len(message.payload) < 100_000) == (7, 300_000, True)
    assert (after.type, read_number(after)) == (packets.PUBREL, 9)


@given(st.binary(max_size=200))
def test_nonsense_is_refused_or_waited_for(data: bytes) -> None:
    read = 0
    with contextlib.suppress(Malformed):
        for packet in Decoder(100).feed(data):
            read += len(packet.body)
            if packet.type == packets.PUBLISH:
                assert len(read_message(packet).payload) <= len(packet.body)
    assert read <= len(data)


def test_levels_of_topics_become_fields() -> None:
    pattern = read_pattern("sensors/{device}/+/{path#}")
    assert pattern.filter == "sensors/+/+/#"
    assert pattern.fields("sensors/d1/x/a/b") == {"device": "d1", "path": "a/b"}
    assert pattern.fields("sensors/d1/x") == {"device": "d1", "path": ""}
    assert pattern.fields("sensors/d1") is None
    assert pattern.fields("other/d1/x/a") is None
    for text in ("", "a/#/b", "a/b+", "a/{b", "a/{1}"):
        with pytest.raises(ConfigError):
            read_pattern(text)


def test_payloads_become_events() -> None:
    settings = MqttSettings(type="mqtt", topic="t", topics=["s/{device}"], topic_field="at")
    patterns = [read_pattern(one) for one in settings.topics]

    def event(payload: bytes) -> object:
        return read_event(read_message(Decoder(100).feed(packets.publish("s/d1", payload))[0]), settings, patterns)

    assert event(b'{"n": 1, "device": "spoofed"}') == {"n": 1, "device": "d1", "at": "s/d1"}
    assert event(b"21.5") == {"value": 21.5, "device": "d1", "at": "s/d1"}
