"""Text → tokens."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal

from headrace.errors import SqlError
from headrace.nearest import did_you_mean
from headrace.sql.script import Script

Kind = Literal["word", "quoted", "string", "bytes", "integer", "decimal", "double", "operator", "end"]

# Words that cannot be names unless quoted, because a clause or an operator starts or ends with them.
# fmt: off
RESERVED = frozenset([
    "SELECT", "FROM", "WHERE", "GROUP", "BY", "HAVING", "WINDOW", "LIMIT", "WITHIN", "JOIN", "LEFT", "RIGHT", "FULL",
    "INNER", "OUTER", "CROSS", "ON", "AS", "AND", "OR", "NOT", "IN", "IS", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN",
    "ELSE", "END", "NULL", "TRUE", "FALSE", "CAST", "CREATE", "INSERT", "INTO", "VALUES", "DROP", "WITH", "DISTINCT",
])
# fmt: on
# Words that may be names, but not an alias without AS: what they begin may follow there.
NOT_AN_ALIAS = RESERVED | {
    "ORDER",
    "EMIT",
    "PARTITION",
    "GRACE",
    "ESCAPE",
    "ASC",
    "DESC",
    "MATCH_RECOGNIZE",
    "REFRESH",
}

LONGEST_INTEGER = 19
MOST_DIGITS = 38
LARGEST_INTEGER = 2**63

_TOKEN = re.compile(
    r"""
      (?P<space>    \s+ | --[^\n]* | /\*.*?\*/ )
    | (?P<bytes>    [xX]'[^']*' )
    | (?P<string>   '(?:[^']|'')*' )
    | (?P<dollars>  \$\$.*?\$\$ )
    | (?P<quoted>   `(?:[^`]|``)*` | "(?:[^"]|"")*" )
    | (?P<double>   (?:\d+(?:\.\d*)?|\.\d+)[eE][+-]?\d+ )
    | (?P<decimal>  \d+\.\d* | \.\d+ )
    | (?P<word>     \d*[A-Za-z_][A-Za-z0-9_@]* )
    | (?P<integer>  \d+ )
    | (?P<variable> \$\{[^}]*\} )
    | (?P<operator> => | -> | := | <> | != | <= | >= | \|\| | /(?!\*) | [-+*%=<>()\[\],;.] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_VARIABLE = re.compile(r"\$\{([^}]*)\}")
_UNCLOSED = {"$$": "text", "'": "string", "`": "quoted name", '"': "quoted name", "/*": "comment"}


@dataclass(frozen=True, slots=True)
class Token:
    """`text` is as written; `value` is the word in upper case, the unquoted name or string, or the number."""

    kind: Kind
    text: str
    value: Any
    start: int
    end: int
    substituted: bool = False

    @property
    def shown(self) -> str:
        if self.kind == "end":
            return "the end of the text"
        return f"`{self.text if len(self.text) <= 40 else self.text[:37] + '…'}`"


def tokenize(script: Script, variables: Mapping[str, str] | None = None) -> list[Token]:
    """All tokens, then one of kind `end`. `${name}` is replaced by the variable's value, also in strings. A DEFINE
    counts for what follows it."""
    tokens: list[Token] = []
    text, position, first = script.text, 0, 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(script, position)
        kind, start, position = match.lastgroup, position, match.end()
        if kind == "variable":
            _add(tokens, _substituted(script, start, position, variables or {}))
        elif kind != "space":
            _add(tokens, [_token(script, kind, start, position, variables)])
            if tokens[-1].text == ";":
                variables, first = _defined(tokens[first:-1], variables), len(tokens)
    tokens.append(Token("end", "", None, len(text), len(text)))
    return tokens


def _add(tokens: list[Token], found: list[Token]) -> None:
    """`${region}_orders` is one name: what touches a variable's value belongs to it."""
    before = tokens[-1] if tokens else None
    if before is not None and found and before.end == found[0].start and before.kind == "word":
        first, *found = found
        touches = (before.substituted or first.substituted) and first.kind in ("word", "integer")
        text = before.text + first.text
        glued = Token("word", text, text.upper(), before.start, first.end, True)
        tokens[-1:] = [glued] if touches else [before, first]
    tokens += found


def _defined(statement: list[Token], variables: Mapping[str, str] | None) -> Mapping[str, str] | None:
    """The variables after a statement."""
    match [token.value for token in statement]:
        case ["DEFINE", str(name), "=", str(value)]:
            return _without(name, variables) | {name: value}
        case ["UNDEFINE", str(name)]:
            return _without(name, variables)
        case _:
            return variables


def _without(name: str, variables: Mapping[str, str] | None) -> dict[str, str]:
    return {known: value for known, value in (variables or {}).items() if known.upper() != name.upper()}


def _token(script: Script, kind: Any, start: int, end: int, variables: Mapping[str, str] | None) -> Token:
    text, substituted = script.text[start:end], False
    if variables and kind in ("string", "quoted") and "${" in text:
        text, substituted = _VARIABLE.sub(lambda m: _lookup(script, m[1], start, end, variables), text), True
    if kind in ("decimal", "double"):
        _check_number_ends(script, end)
    if kind == "dollars":
        # A string in which nothing has a meaning: what is written there has its own quotes.
        return Token("string", text, text[2:-2], start, end)
    return Token(kind, text, _value(script, kind, text, start, end), start, end, substituted)


def _value(script: Script, kind: str, text: str, start: int, end: int) -> Any:
    match kind:
        case "word":
            return text.upper()
        case "string" | "quoted":
            quote = text[0]
            return text[1:-1].replace(quote * 2, quote)
        case "bytes":
            return _bytes(script, text, start, end)
        case "integer" | "decimal" | "double":
            return _number(script, kind, text, start, end)
        case _:
            return text


def _number(script: Script, kind: str, text: str, start: int, end: int) -> int | float | Decimal:
    span = script.span(start, end)
    digits = text.replace(".", "").lstrip("0")
    if kind == "double":
        value = float(text)
        if value in (float("inf"), float("-inf")):
            raise script.error(f"`{text}` is too large for DOUBLE", span)
        return value
    if kind == "decimal":
        if len(digits) > MOST_DIGITS or len(text.partition(".")[2]) > MOST_DIGITS:
            raise script.error(f"a decimal has at most {MOST_DIGITS} digits", span, "write a DOUBLE, such as 1.5E0")
        return Decimal(text)
    # 2^63 itself is let through: it is the smallest BIGINT after a minus sign, and the parser checks.
    if len(digits) > LONGEST_INTEGER or int(digits or "0") > LARGEST_INTEGER:
        raise script.error(f"`{text[:40]}` is too large for BIGINT", span, "write a DOUBLE, such as 1E30")
    return int(digits or "0")


def _bytes(script: Script, text: str, start: int, end: int) -> bytes:
    try:
        return bytes.fromhex(text[2:-1])
    except ValueError:
        raise script.error(
            "bytes are written as pairs of hexadecimal digits", script.span(start, end), "X'CAFE'"
        ) from None


def _check_number_ends(script: Script, end: int) -> None:
    following = script.text[end : end + 1]
    if following.isalpha() or following == "_":
        raise script.error(
            "a name cannot begin with a digit", script.span(end, end + 1), "write such a name in backticks"
        )


def _substituted(script: Script, start: int, end: int, variables: Mapping[str, str]) -> list[Token]:
    value = _lookup(script, script.text[start + 2 : end - 1], start, end, variables)
    try:
        inner = tokenize(Script(value))[:-1]
    except SqlError as error:
        raise script.error(f"in the variable's value: {error.message}", script.span(start, end), error.hint) from None
    return [Token(token.kind, token.text, token.value, start, end, True) for token in inner]


def _lookup(script: Script, name: str, start: int, end: int, variables: Mapping[str, str]) -> str:
    by_upper = {known.upper(): value for known, value in variables.items()}
    if name.upper() not in by_upper:
        hint = did_you_mean(name, variables, "DEFINE it before, or give it with the statement")
        raise script.error(f"variable `{name}` is not defined", script.span(start, end), hint)
    return by_upper[name.upper()]


def _unreadable(script: Script, position: int) -> SqlError:
    text, span = script.text, script.span(position, position + 1)
    for opening, what in _UNCLOSED.items():
        if text.startswith(opening, position):
            closing = "*/" if opening == "/*" else opening
            twice = "; a quote inside is written twice: 'it''s'" if opening == "'" else ""
            return script.error(f"this {what} does not end", span, f"close it with {closing}{twice}")
    if text.startswith("${", position):
        return script.error("this variable does not end", span, "close it with }")
    hint = "write names with such characters in backticks" if text[position].isalpha() else None
    return script.error(f"unexpected character `{text[position]}`", span, hint)
