"""A disk that forgets what was not synced.

A file's bytes are durable when the file was synced after they were written; a name (made, renamed, removed) when
its folder was. After a power cut any part of the rest may be there: some writes and not others, writes torn at a
sector, a new name without its bytes, bytes without their name.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tests.chaos.log.trace import AT_END, Call

SECTOR = 512


@dataclass(eq=False)
class File:
    durable: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes at a position, and cuts to a length (None), since the last sync."""
    syncing: dict[str, int] = field(default_factory=dict)

    def content(self, chance: random.Random | None) -> bytes:
        """With everything, or with what chance leaves of it."""
        data = bytearray(self.durable)
        for position, written in self.pending:
            if chance is not None:
                fate = chance.random()
                if fate < 0.4:
                    continue
                if fate < 0.6 and written:
                    written = written[: chance.randrange(0, len(written) + SECTOR, SECTOR)]
            if written is None:
                del data[position:]
                data.extend(bytes(position - len(data)))
            else:
                data.extend(bytes(max(0, position - len(data))))
                data[position : position + len(written)] = written
        return bytes(data)


@dataclass(eq=False)
class Folder:
    durable: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[tuple[str, File | Folder | None]] = field(default_factory=list)
    syncing: dict[str, int] = field(default_factory=dict)

    def entries(self, chance: random.Random | None) -> dict[str, File | Folder]:
        names = dict(self.durable)
        lost: set[str] = set()
        for name, entry in self.pending:
            # A later change of a name is not there without the earlier one.
            if chance is not None and (name in lost or chance.random() < 0.4):
                lost.add(name)
                continue
            if entry is None:
                names.pop(name, None)
            else:
                names[name] = entry
        return names


class Disk:
    """Below one folder; everything else is not looked at."""

    def __init__(self, root: str) -> None:
        self._root = PurePosixPath(root)
        self.top = Folder()

    def apply(self, call: Call) -> None:
        parts = self._parts(call.path)
        if parts is None:
            return
        if call.what in ("sync", "begin sync"):
            self._sync(call, parts)
            return
        if not parts:
            return
        folder, name = self._folder(parts[:-1]), parts[-1]
        now = folder.entries(None)
        match call.what:
            case "create" if name not in now:
                folder.pending.append((name, File()))
            case "mkdir":
                folder.pending.append((name, Folder()))
            case "unlink":
                folder.pending.append((name, None))
            case "rename":
                target = self._parts(call.to)
                folder.pending.append((name, None))
                if target is not None:
                    self._folder(target[:-1]).pending.append((target[-1], now[name]))
            case "write" | "truncate":
                file = now.get(name)
                if isinstance(file, File):  # else it was removed while it was open
                    position = len(file.content(None)) if call.position == AT_END else call.position
                    file.pending.append((position, call.data if call.what == "write" else None))

    def _sync(self, call: Call, parts: tuple[str, ...]) -> None:
        thing: File | Folder | None = self.top
        for part in parts:
            thing = thing.entries(None).get(part) if isinstance(thing, Folder) else None
        if thing is None:
            return
        if call.what == "begin sync":
            thing.syncing[call.thread] = len(thing.pending)
            return
        count = thing.syncing.pop(call.thread, 0)
        if isinstance(thing, File):
            thing.durable = File(thing.durable, thing.pending[:count]).content(None)
        else:
            thing.durable = Folder(thing.durable, thing.pending[:count]).entries(None)
        del thing.pending[:count]
        for thread in thing.syncing:
            thing.syncing[thread] = max(0, thing.syncing[thread] - count)

    def write_image(self, target: Path, chance: random.Random) -> None:
        """What may be there after the power went now."""
        _write(self.top, target, chance)

    def _parts(self, path: str) -> tuple[str, ...] | None:
        try:
            return PurePosixPath(path).relative_to(self._root).parts
        except ValueError:
            return None

    def _folder(self, parts: Iterable[str]) -> Folder:
        folder = self.top
        for part in parts:
            below = folder.entries(None)[part]
            assert isinstance(below, Folder)
            folder = below
        return folder


def _write(folder: Folder, target: Path, chance: random.Random) -> None:
    target.mkdir()
    for name, entry in folder.entries(chance).items():
        if isinstance(entry, Folder):
            _write(entry, target / name, chance)
        else:
            (target / name).write_bytes(entry.content(chance))
