"""A collector's rules in their order: enrich, convert and check, hide. What is rejected is hidden as well, so that a
dead letter tells no more than a record would."""

from __future__ import annotations

import decimal
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from headrace.collect.base import Sent
from headrace.collect.rules.enriching import Enriching
from headrace.collect.rules.fields import Event, Spellings, is_within
from headrace.collect.rules.hiding import Hiding
from headrace.collect.rules.settings import EnrichSettings, PrivacySettings, ValidateSettings
from headrace.collect.rules.validating import Validating
from headrace.log.base import Topic
from headrace.log.codecs.json_codec import FieldTexts, Unreadable

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_exact: msgspec.json.Decoder[Any] = msgspec.json.Decoder(float_hook=decimal.Decimal)
_encoder = msgspec.json.Encoder(decimal_format="number")
# To the last one: what is quoted may have some of its own.
_QUOTED = re.compile(r"`.*`", re.DOTALL)


class Rules:
    """Made for one topic as it is now. Safe to use from several threads."""

    def __init__(
        self,
        collector: str,
        topic: Topic,
        key: bytes,
        enrich: EnrichSettings,
        validate: ValidateSettings,
        privacy: PrivacySettings,
    ) -> None:
        spellings = Spellings()
        self.topic = topic
        self.enriching = Enriching(enrich, collector, key, spellings)
        self._hiding = Hiding(privacy, key, spellings) if privacy.any else None
        self._withholds = privacy.any and privacy.unreadable == "withhold"
        hidden = self._hiding.names if self._hiding is not None else ()
        self._validating = Validating(validate, topic, hidden, self.enriching.names, spellings)
        self._checks = validate != ValidateSettings()
        # What was hidden is no longer what was checked.
        seen = ValidateSettings(
            required=[name for name in validate.required if not is_within(name, hidden)],
            unknown=validate.unknown,
            fields={name: rule for name, rule in validate.fields.items() if not is_within(name, hidden)},
        )
        self._again = Validating(seen, topic, hidden, self.enriching.names, spellings)

    def again(self, sent: Sent) -> Sent:
        """Events that went through these rules already and were changed since, as a letter is that was put right, or
        that never could be read until then: hidden, and refused where they do not fit."""
        events = sent.events
        if self._hiding is not None:
            hide = self._hiding.hide_again
            events = [hide(event) if type(event) is dict else event for event in events]
        slices = sent.slices if self._hiding is None else _Rewritten(sent, events, True, self._withholds)
        return Sent(events, slices, {**self._again.misfits(events), **sent.refused})

    def apply(
        self, sent: Sent, address: str, user_agent: str, now_ms: int, visitor: str = "", session: str = ""
    ) -> Sent:
        fill = self.enriching.fill(address, user_agent, now_ms, visitor, session)
        events = [self._prepared(event, fill) for event in sent.events]
        refused = {**(self._validating.misfits(events) if self._checks else {}), **sent.refused}
        if self._hiding is not None:
            hide = self._hiding.hide
            events = [hide(event) if type(event) is dict else event for event in events]
        if self._withholds:
            events = [
                event if type(event) is dict else _unnamed(event, len(sent.slices(row)))
                for row, event in enumerate(events)
            ]
        return Sent(events, _Rewritten(sent, events, self._hiding is not None, self._withholds), refused)

    def _prepared(self, event: Any, fill: Any) -> Any:
        if type(event) is not dict:
            return event
        filled: Event = fill(event)
        return self._validating.coerced(filled) if self._checks else filled


def _unnamed(event: Any, size: int) -> Unreadable:
    """In the place of what is no object: nobody can say what is in its bytes, so they are not kept, nor quoted."""
    reason = _QUOTED.sub("`…`", event.reason) if isinstance(event, Unreadable) else "is no JSON object"
    return Unreadable(f"{reason} (its {size} bytes are withheld: [privacy])")


class _Rewritten(FieldTexts):
    """The text of events that were changed: what was not is as it was sent, to the last digit.

    Where something is hidden (`hides`), only what was read is written: a text may say a field twice, and of the first
    one nobody has looked at."""

    def __init__(self, sent: Sent, events: Sequence[Any], hides: bool, withholds: bool) -> None:
        self._sent, self._events, self._hides, self._withholds = sent, events, hides, withholds

    def __call__(self, row: int) -> bytes:
        event = self._events[row]
        if type(event) is not dict:
            return b"" if self._withholds else self._sent.slices(row)
        untouched = event is self._sent.events[row] and not self._hides
        return self._sent.slices(row) if untouched else self.some(row, tuple(event))

    def some(self, row: int, fields: tuple[str, ...]) -> bytes:
        before, event = self._sent.events[row], self._events[row]
        same = [field in before and event[field] is before[field] for field in fields]
        if not any(same):
            return _encoder.encode({field: event[field] for field in fields})
        sent = _fields.decode(self._sent.slices(row))
        # Not all that is the same was sent: an id may have been given to it on the way here.
        texts = [
            _encoder.encode(field)
            + b":"
            + (self._kept(bytes(sent[field])) if kept and field in sent else _encoder.encode(event[field]))
            for field, kept in zip(fields, same, strict=True)
        ]
        return b"{" + b",".join(texts) + b"}"

    def _kept(self, text: bytes) -> bytes:
        return _encoder.encode(_exact.decode(text)) if self._hides and text[0] in b"{[" else text
