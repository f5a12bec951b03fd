"""What a process did to its disk, read from strace: the writes with their bytes, syncs, and changes of names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CALLS = (
    "openat,write,pwrite64,pwritev,pwritev2,ftruncate,fallocate,fsync,fdatasync,"
    "rename,renameat,renameat2,unlink,unlinkat,mkdir,mkdirat,rmdir"
)


def strace(trace: Path) -> tuple[str, ...]:
    return ("strace", "-f", "--seccomp-bpf", "-y", "-xx", "-s", "100000000", "-o", str(trace), "-e", f"trace={CALLS}")


AT_END = -1
"""The position of a plain write: nothing that the log keeps seeks back."""


@dataclass(frozen=True, slots=True)
class Call:
    """One system call. A sync has a beginning of its own: what was written before it is durable when it has ended."""

    what: Literal["create", "write", "truncate", "begin sync", "sync", "rename", "unlink", "mkdir", "say"]
    path: str
    position: int = 0
    data: bytes = b""
    to: str = ""
    thread: str = ""


_LINE = re.compile(r"^(\d+) +(.*)$", re.S)
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$", re.S)
_CALL = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+|\?)(.*)$", re.S)
_FD = re.compile(r"^(\d+)<([^>]*)>")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
_BUFFER = re.compile(r'iov_base="((?:\\x[0-9a-f]{2})*)"')


def read_trace(trace: Path) -> Iterator[Call]:
    """In the order in which the calls ended."""
    unfinished: dict[str, str] = {}
    for line in trace.read_text(errors="surrogateescape").splitlines():
        found = _LINE.match(line)
        if not found:
            continue
        thread, text = found.groups()
        if resumed := _RESUMED.match(text):
            text = unfinished.pop(thread, "") + resumed[2].lstrip()
        elif text.endswith("<unfinished ...>"):
            unfinished[thread] = text.removesuffix("<unfinished ...>").rstrip()
            if text.startswith(("fsync", "fdatasync")):
                yield Call("begin sync", _path(text.partition("(")[2]), thread=thread)
            continue
        elif text.startswith(("fsync", "fdatasync")):
            yield Call("begin sync", _path(text.partition("(")[2]), thread=thread)
        call = _CALL.match(text)
        if call and not call[3].startswith("-") and call[3] != "?":
            yield from _read_call(call[1], call[2], int(call[3]), thread)


def _read_call(name: str, arguments: str, result: int, thread: str) -> Iterator[Call]:
    match name:
        case "openat" if "O_CREAT" in arguments or "O_TRUNC" in arguments:
            yield Call("create", _texts(arguments)[0])
            if "O_TRUNC" in arguments:
                yield Call("truncate", _texts(arguments)[0])
        case "write" if arguments.startswith("1<"):
            yield Call("say", "", data=_bytes(_TEXT, arguments)[:result])
        case "write" if _is_file(arguments):
            yield Call("write", _path(arguments), AT_END, _bytes(_TEXT, arguments)[:result])
        case "pwrite64" | "pwritev" | "pwritev2":
            pattern = _TEXT if name == "pwrite64" else _BUFFER
            numbers = re.findall(r", (\d+)", arguments[arguments.rindex('"') :])
            position = int(numbers[-1] if name != "pwritev2" else numbers[-2])
            yield Call("write", _path(arguments), position, _bytes(pattern, arguments)[:result])
        case "ftruncate":
            yield Call("truncate", _path(arguments), int(arguments.rpartition(", ")[2]))
        case "fsync" | "fdatasync":
            yield Call("sync", _path(arguments), thread=thread)
        case "rename" | "renameat" | "renameat2":
            old, new = _texts(arguments)
            yield Call("rename", old, to=new)
        case "unlink" | "unlinkat":
            yield Call("unlink", _texts(arguments)[0])
        case "mkdir" | "mkdirat":
            yield Call("mkdir", _texts(arguments)[0])


def _is_file(arguments: str) -> bool:
    return _path(arguments).startswith("/") and not _path(arguments).startswith("/dev/")


def _path(arguments: str) -> str:
    found = _FD.match(arguments)
    assert found, arguments[:200]
    return _unescape(found[2]).decode(errors="replace")


def _texts(arguments: str) -> list[str]:
    return [_unescape(text).decode(errors="replace") for text in _TEXT.findall(arguments)]


def _bytes(pattern: re.Pattern[str], arguments: str) -> bytes:
    return b"".join(_unescape(text) for text in pattern.findall(arguments))


def _unescape(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", "")) if text.startswith("\\x") else text.encode()
