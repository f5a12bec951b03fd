"""Where the parser is in its tokens, what it could have taken there, and errors that say so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.errors import SqlError
from headrace.nearest import nearest
from headrace.sql.clauses import Identifier, Query
from headrace.sql.expressions import Span
from headrace.sql.parser.habits import WINDOWS, usual_mistake
from headrace.sql.script import Script
from headrace.sql.tokens import NOT_AN_ALIAS, RESERVED, Token

# Deep enough for any statement a person or a program writes, shallow enough for every walk over the tree to recurse.
MAX_DEPTH = 80


class Cursor:
    """A place in a list of tokens. `accept_*` take a token if it is there, `expect_*` insist on it."""

    def __init__(self, script: Script, tokens: list[Token]) -> None:
        self.script = script
        self.tokens = tokens
        self.index = 0
        self.lambda_scopes: list[tuple[str, ...]] = []
        self.parse_query: Callable[[Cursor], Query] | None = None
        """For subqueries. Handed in: queries are made of expressions, and only there it is the other way round."""
        self._depth = 0
        self._tried: set[str] = set()
        self._implicit_alias: tuple[int, frozenset[str], bool] | None = None

    @property
    def token(self) -> Token:
        return self.tokens[self.index]

    @property
    def previous(self) -> Token:
        return self.tokens[max(0, self.index - 1)]

    def peek(self, ahead: int = 1) -> Token:
        return self.tokens[min(self.index + ahead, len(self.tokens) - 1)]

    def advance(self) -> Token:
        token = self.token
        if token.kind != "end":
            self.index += 1
        self._tried.clear()
        return token

    def at_word(self, *words: str) -> bool:
        """Whether one of these words comes next. Not taken."""
        self._tried.update(words)
        return self.token.kind == "word" and self.token.value in words

    def at_operator(self, *operators: str) -> bool:
        return self.token.kind == "operator" and self.token.text in operators

    def accept_word(self, *words: str) -> str | None:
        """Take one of these words, if it comes next, and return it."""
        return str(self.advance().value) if self.at_word(*words) else None

    def accept_words(self, *phrase: str) -> bool:
        """Take these words in this order, all or none."""
        self._tried.add(phrase[0])
        following = [self.peek(ahead) for ahead in range(len(phrase))]
        if any(t.kind != "word" or t.value != word for t, word in zip(following, phrase, strict=True)):
            return False
        for _ in phrase:
            self.advance()
        return True

    def accept_operator(self, *operators: str) -> str | None:
        return self.advance().text if self.at_operator(*operators) else None

    def expect_word(self, *words: str) -> str:
        found = self.accept_word(*words)
        if found is None:
            raise self.expected(" or ".join(f"`{word}`" for word in words))
        return found

    def expect_operator(self, operator: str) -> None:
        if not self.accept_operator(operator):
            raise self.expected(f"`{operator}`")

    def identifier(self, what: str) -> Identifier:
        """A name; `what` says of what, for the error."""
        token = self.token
        if token.kind == "quoted":
            if not token.value:
                raise self.error("a name cannot be empty")
        elif token.kind != "word":
            raise self.expected(what)
        elif token.value in RESERVED:
            raise self.error(
                f"expected {what}, got `{token.text}`",
                hint=f"{token.value} is a reserved word; as a name write `{token.text}` in backticks",
            )
        self.advance()
        return Identifier(token.value, self.span(token))

    def alias(self, in_list: bool = False) -> Identifier | None:
        """`AS name`, or a name that can only be an alias. `in_list`: of an expression that a comma may follow."""
        if self.accept_word("AS"):
            return self.identifier("a name")
        token = self.token
        if token.kind == "quoted" or (token.kind == "word" and token.value not in NOT_AN_ALIAS):
            # A mistyped keyword looks like an alias; the error comes one token later and should name the keyword.
            tried = frozenset(self._tried)
            found = self.identifier("a name")
            self._implicit_alias = (self.index, tried | NOT_AN_ALIAS, in_list)
            return found
        return None

    def string(self, what: str) -> str:
        if self.token.kind != "string":
            raise self.expected(what)
        return str(self.advance().value)

    def integer(self, what: str) -> int:
        if self.token.kind != "integer":
            raise self.expected(what)
        return int(self.advance().value)

    def span(self, first: Token, last: Token | None = None) -> Span:
        """From the beginning of `first` to the end of `last`."""
        return self.script.span(first.start, (last or first).end)

    def span_since(self, first: Token) -> Span:
        return self.span(first, self.previous)

    @contextmanager
    def nested(self) -> Iterator[None]:
        """One level deeper, refused beyond `MAX_DEPTH`."""
        if self._depth >= MAX_DEPTH:
            raise self.too_deep(self.span(self.token))
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1

    def too_deep(self, span: Span | None) -> SqlError:
        hint = "compute parts of it in a stream of their own, or use IN (…) instead of many ORs"
        return self.script.error(f"nested too deeply: more than {MAX_DEPTH} levels", span, hint)

    def error(self, message: str, token: Token | None = None, hint: str | None = None) -> SqlError:
        return self.script.error(message, self.span(token or self.token), hint)

    def expected(self, what: str, hint: str | None = None) -> SqlError:
        """The next token is not what could stand here."""
        return self.error(f"expected {what}, got {self.token.shown}", hint=hint or self.guess())

    def unsupported(self, what: str, token: Token | None = None, hint: str | None = None) -> SqlError:
        """Understood, but Headrace cannot do it yet."""
        return self.script.error(f"{what} is not supported yet", self.span(token or self.token), hint, unsupported=True)

    def guess(self) -> str | None:
        """The keyword that was probably meant here."""
        if self._implicit_alias and self._implicit_alias[0] == self.index:
            _, keywords, in_list = self._implicit_alias
            if in_list and self.token.text in ("(", "."):
                # Not a mistyped keyword: a call, or a column of a source, with nothing before it.
                return f"is a comma missing before `{self.previous.text}`?"
            if self.token.text == "(" and self.previous.value in WINDOWS:
                return f"a window is written WINDOW {self.previous.value} (…)"
            found = nearest(str(self.previous.value), keywords) if len(self.previous.text) > 2 else None
            if found and found != self.previous.value:
                return f"did you mean `{found}` instead of `{self.previous.text}`?"
            if in_list and self.token.kind in ("word", "quoted", "string", "integer"):
                return f"is a comma missing before `{self.previous.text}`?"
        if habit := usual_mistake(self.tokens, self.index):
            return habit
        # A reserved word is hardly a mistyped one.
        if self.token.kind == "word" and self.token.value not in RESERVED:
            found = nearest(self.token.value, self._tried)
            return f"did you mean `{found}`?" if found else None
        return None
