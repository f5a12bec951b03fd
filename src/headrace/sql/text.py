"""Values as text, as CAST(… AS VARCHAR) gives it."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

from headrace.sql.numeric import double_text


def value_text(value: Any) -> str:
    """A value that is not a TIME or a TIMESTAMP, whose Python form is a plain number."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            return double_text(value)
        case Decimal():
            return format(value, "f")
        case datetime.date():
            return value.isoformat()
        case bytes():
            return "0x" + value.hex().upper()
        case list():
            return "[" + ", ".join(value_text(element) for element in value) + "]"
        case dict():
            return "{" + ", ".join(f"{value_text(key)}={value_text(item)}" for key, item in value.items()) + "}"
        case _:
            return str(value)
