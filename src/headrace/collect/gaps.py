"""Doors of a topic past what one of its collectors hides: rules hold for the collector whose file has them, and a topic
may be reached in other ways."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.collect.definitions import Definition


def privacy_gaps(definition: Definition, others: Sequence[Definition]) -> list[str]:
    """Where what it hides may be stored all the same. `others` are all that run, with or without this one."""
    hidden = definition.settings.privacy.names
    if not hidden or not definition.settings.enabled:
        return []
    found = []
    for topic in definition.settings.destinations:
        doors = [one for one in others if one.settings.enabled and topic in one.settings.destinations]
        if definition.kind.name != "http" and not any(one.kind.name == "http" for one in doors):
            found.append(
                f"what it hides may still be sent to POST /v1/topics/{topic}/events, which no collector keeps: "
                f'one of type "http" with the same [privacy] would'
            )
        for door in doors:
            told = [name for name in hidden if not _hides(door, name)] if door.name != definition.name else []
            if told:
                names = ", ".join(f"`{name}`" for name in told)
                found.append(f"collector `{door.name}` writes to topic `{topic}`, too, and does not hide {names}")
    return found


def _hides(door: Definition, name: str) -> bool:
    """It does, or what the field is in."""
    one = f"{name}.".casefold()
    return any(one.startswith(f"{other}.".casefold()) for other in door.settings.hides.names)
