"""Patterns of users: what RE2 runs, what is refused, and that nothing else in the server runs one."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import headrace
from headrace.errors import UsageError
from headrace.log.subscription import wanted
from headrace.patterns import compile_pattern
from headrace.server.consumers import subscription
from headrace.sql.datetimes import parse_with

PACKAGE = Path(headrace.__file__).parent
HOSTILE = "a" * 60 + "!"


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|a)+$", "(a|aa)+$", "(.*a){25}$", "(a*)*b"])
def test_a_pattern_that_backtracks_elsewhere_takes_no_time(pattern: str) -> None:
    assert compile_pattern(pattern).search(HOSTILE) is None


@pytest.mark.parametrize(
    ("pattern", "named"),
    [
        ("a(?=b)", "lookaround"),
        ("a(?!b)", "lookaround"),
        ("(?<=a)b", "lookaround"),
        ("(?<!a)b", "lookaround"),
        (r"(a)\1", "back-references"),
        (r"(?<n>a)\k<n>", "back-references"),
        ("(?P<n>a)(?P=n)", "back-references"),
        ("a++", "possessive quantifiers"),
        ("a{2}+", "possessive quantifiers"),
        ("(?>a)", "atomic groups"),
        ("(?x) a", "the flag `x`"),
        (r"a\Z", r"`\Z`"),
        ("[a-z&&[^b]]", "an intersection of classes"),
        ("[a[bc]]", "`[` in a class"),
        ("(?iU)a", "the flag `U`"),
        (r"\C", r"`\C`"),
        ("(a{500}){500}", "too large"),
        ("(", "missing )"),
        ("[", "missing ]"),
    ],
)
def test_what_re2_does_not_have_is_named(pattern: str, named: str) -> None:
    with pytest.raises(UsageError, match=re.escape(named)):
        compile_pattern(pattern)


def random_pattern(rng: random.Random, depth: int = 0) -> str:
    kind = rng.random()
    if depth > 2 or kind < 0.4:
        return rng.choice(["a", "b", "é", ".", "[ab]", "[^a]", "[0-9]", "x?", "(?:a|ab)"])
    inner = random_pattern(rng, depth + 1)
    if kind < 0.6:
        return inner + random_pattern(rng, depth + 1)
    if kind < 0.75:
        # RE2 simplifies the repetition of what may be empty, and then prefers other matches.
        return inner if re.fullmatch(inner, "") else f"(?:{inner}){rng.choice(['*', '+', '?', '*?', '{1,2}'])}"
    if kind < 0.9:
        return f"(?:{inner}|{random_pattern(rng, depth + 1)})"
    return rng.choice(["^", "$", ""]) + f"({inner})"


def java_matches(pattern: re.Pattern[str], text: str) -> Iterator[re.Match[str]]:
    """As Java goes on: after an empty match, one character further."""
    at = 0
    while at <= len(text) and (found := pattern.search(text, at)) is not None:
        yield found
        at = found.end() if found.end() > found.start() else found.end() + 1


def test_matches_are_those_of_a_backtracking_engine() -> None:
    rng = random.Random(17)
    for _ in range(3000):
        pattern = random_pattern(rng)
        text = "".join(rng.choice("aabé1x😀") for _ in range(rng.randrange(8)))
        expected = [found[0] for found in java_matches(re.compile(pattern), text)]
        assert [found[0] for found in compile_pattern(pattern).finditer(text)] == expected, (pattern, text)


def test_texts_that_are_not_unicode_are_matched_and_kept() -> None:
    text = b"\xe9t\xe9 ERROR".decode("utf-8", "surrogateescape")
    pattern = compile_pattern(r"^(\S+) ERROR")
    found = pattern.search(text)
    assert found is not None
    assert found[1] == text[:3]
    assert pattern.replace(text, lambda match: f"<{match[1]}>").encode("utf-8", "surrogateescape") == b"<\xe9t\xe9>"


def test_topics_are_matched_by_re2() -> None:
    many = wanted("*" * 40 + "z")
    assert not many.matches("a" * 200)
    assert many.matches("a" * 200 + "z")
    assert wanted(re.compile("EU-.*", re.IGNORECASE)).among(["eu-1", "us-1"]) == {"eu-1"}
    assert wanted(subscription("/eu-(a+)+/")).among(["eu-aaa", "eu-" + HOSTILE]) == {"eu-aaa"}
    for given in (re.compile("a(?=b)"), re.compile("a b", re.VERBOSE)):
        with pytest.raises(UsageError, match="RE2 does not have"):
            wanted(given)
    with pytest.raises(UsageError, match="lookaround"):
        subscription("/a(?=b)/")


def test_times_are_read_by_re2() -> None:
    with pytest.raises(ValueError, match="does not look like"):
        parse_with("a" * 190 + "!", "zVzVzVzVzVzVzVzVzVzV")


# Calls of `re` whose pattern is not written there, and why no user can make them slow.
MADE_OF_CONSTANTS = {
    "collect/weblogs.py": "joins a constant, possessive quantifiers",
    "collect/syslog/parse.py": "the two grammars above it",
    "coordinate/firehose/definition.py": "joins a constant list",
    "log/codecs/delimited.py": "one escaped delimiter, possessive quantifiers",
    "log/codecs/times.py": "each part at most once, of at most nine digits",
    "process/checkpoints.py": "an escaped name, over Spark's own files",
    "sql/functions/json_fields.py": "an escaped text without any operator",
}
RUN = {"compile", "match", "search", "fullmatch", "sub", "subn", "split", "findall", "finditer"}
# The command, tests of pipelines and the library run on the machine of whoever writes the pattern.
NOT_THE_SERVER = {"cli", "client", "testing"}


def test_python_s_engine_runs_only_patterns_of_ours() -> None:
    found = set()
    for file in PACKAGE.rglob("*.py"):
        name = file.relative_to(PACKAGE).as_posix()
        if name.split("/")[0] in NOT_THE_SERVER:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert not {alias.name for alias in node.names} & {"fnmatch", "sre_compile", "regex"}, name
            if isinstance(node, ast.ImportFrom) and node.module == "re":
                assert not {alias.name for alias in node.names} & RUN, f"{name}: import re, so that its calls are seen"
            call = _pattern_call(node)
            if call is not None and not _is_constant(call.args[0]):
                found.add(name)
    assert found == set(MADE_OF_CONSTANTS)


def _pattern_call(node: ast.AST) -> ast.Call | None:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr not in RUN:
        return None
    return node if isinstance(node.func.value, ast.Name) and node.func.value.id == "re" else None


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_constant(node.left) and _is_constant(node.right)
    if isinstance(node, ast.JoinedStr):
        return all(map(_is_constant, node.values))
    if isinstance(node, ast.FormattedValue):
        return _is_constant(node.value)
    # A constant of the module is written in capitals.
    return isinstance(node, ast.Constant) or (isinstance(node, ast.Name) and node.id.isupper())
