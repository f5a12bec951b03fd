"""Groups of files to follow: a folder, and a regular expression for the names in it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace.collect.agents.base import Headers
from headrace.collect.agents.interceptors import java_regex
from headrace.collect.agents.options import Options
from headrace.errors import ConfigError
from headrace.patterns import Regex


@dataclass(frozen=True, slots=True)
class FileGroup:
    folder: Path
    pattern: Regex
    headers: Headers

    def files(self, unreadable: Callable[[Path, OSError], None]) -> Iterator[tuple[Path, os.stat_result]]:
        """Those that match; `unreadable` is told of what cannot be looked at."""
        try:
            entries = sorted(os.scandir(self.folder), key=lambda entry: entry.name)
        except FileNotFoundError:
            return
        except OSError as error:
            unreadable(self.folder, error)
            return
        for entry in entries:
            if not self.pattern.fullmatch(entry.name):
                continue
            try:
                if entry.is_file():
                    yield Path(entry.path), entry.stat()
            except FileNotFoundError:
                continue
            except OSError as error:
                unreadable(Path(entry.path), error)


def make_groups(options: Options) -> list[FileGroup]:
    """`filegroups.NAME` is a folder, and a regular expression for the names in it."""
    paths, headers = options.below("filegroups.*"), options.below("headers.*")
    groups = []
    for name in options.words("filegroups"):
        if name not in paths:
            raise ConfigError(f"file group `{name}` has no path", hint=f"filegroups.{name} = /folder/.*log")
        path = Path(paths[name]).expanduser()
        if not path.is_absolute():
            raise ConfigError(f"`filegroups.{name}` must be a whole path, got `{paths[name]}`")
        groups.append(FileGroup(path.parent, java_regex(path.name), _group_headers(name, headers)))
    return groups


def _group_headers(name: str, headers: Mapping[str, str]) -> Headers:
    return {key.removeprefix(f"{name}."): value for key, value in headers.items() if key.startswith(f"{name}.")}
