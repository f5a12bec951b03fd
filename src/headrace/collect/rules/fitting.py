"""Rules beside the columns they write to: what they would make that no column can hold is said before it happens."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.collect.rules.settings import EnrichSettings, PrivacySettings, ValidateSettings
from headrace.log.base import Topic
from headrace.types import BIGINT, TIMESTAMP, VARCHAR, DataType


def misfit_of(enrich: EnrichSettings, validate: ValidateSettings, privacy: PrivacySettings, topic: Topic) -> str | None:
    """The first rule whose values would all be rejected, or that can do nothing."""
    columns = {column.name.casefold(): column.type for column in topic.spec.key + topic.spec.value}
    for name, verb, types in _written(enrich, privacy):
        column = columns.get(name.casefold())
        if column is not None and column not in types:
            wanted = " or ".join(map(str, types))
            return f"`{name}` is {verb}, but its column is {column}: every event would be rejected; it needs {wanted}"
    for name in validate.coerce:
        rule = validate.fields.get(name)
        if name.casefold() not in columns and (rule is None or rule.type is None):
            return f"`{name}` is to be converted, but no column and no `validate.fields.{name}.type` says into what"
    return None


def _written(enrich: EnrichSettings, privacy: PrivacySettings) -> Iterator[tuple[str, str, tuple[DataType, ...]]]:
    for name in privacy.hash:
        yield name, "hashed", (VARCHAR,)
    for name in privacy.truncate:
        yield name, "cut", (VARCHAR,)
    if enrich.arrival_time:
        yield enrich.arrival_time, "a time", (TIMESTAMP, BIGINT if enrich.arrival_time_as == "ms" else VARCHAR)
    for name in filter(None, (enrich.address, enrich.user_agent, enrich.collector)):
        yield name, "filled with text", (VARCHAR,)
