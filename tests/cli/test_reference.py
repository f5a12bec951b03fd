"""Every command and every setting is documented, and `init` writes them all down."""

from __future__ import annotations

import re
import runpy
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec
import pytest

from headrace.config import ProjectSettings, parse_settings

REFERENCE = runpy.run_path(str(Path(__file__).with_name("reference.py")))
COMMANDS: list[tuple[str, Any]] = list(REFERENCE["commands"]())


@pytest.mark.parametrize("page", list(REFERENCE["PAGES"]))
def test_the_reference_is_what_the_code_says(page: str) -> None:
    written = (REFERENCE["DOCS"] / page).read_text(encoding="utf-8")
    assert written == REFERENCE["PAGES"][page](), "run:  python tests/cli/reference.py"


def test_every_setting_has_a_description() -> None:
    described = REFERENCE["_descriptions"]()
    missing = [
        f"{settings.__name__}.{field.name}"
        for _, settings in REFERENCE["SECTIONS"]
        for field in msgspec.structs.fields(settings)
        if field.name not in described[settings.__name__] and not isinstance(field.default, msgspec.Struct)
    ]
    assert missing == []


@pytest.mark.parametrize(("path", "command"), COMMANDS, ids=[path for path, _ in COMMANDS])
def test_every_command_has_help_an_example_and_json(path: str, command: Any) -> None:
    assert command.help
    assert command.epilog.startswith(f"Example:  {path}")
    assert any("--json" in parameter.opts for parameter in command.params)
    assert [parameter.name for parameter in command.params if parameter.name != "help" and not parameter.help] == []


def test_a_new_project_names_every_setting_with_its_default() -> None:
    template = (resources.files("headrace.cli") / "template" / "headrace.toml").read_text()
    assert parse_settings(tomllib.loads(template)) == ProjectSettings()
    # Only what stands after `# ` and looks like a setting; the prose around it stays a comment.
    uncommented = re.sub(r"^# (\[\[.*|\w+ = .*)$", r"\1", template, flags=re.M)
    raw = tomllib.loads(uncommented)
    assert raw.pop("name") == "{{name}}"
    assert raw["spark"].pop("conf")
    assert raw["log"]["kafka"].pop("conf")
    [key] = raw.pop("auth")["keys"]
    assert set(key) == {"key", "role", "name"}
    everything = msgspec.to_builtins(ProjectSettings())
    del everything["name"], everything["auth"], everything["spark"]["conf"], everything["log"]["kafka"]["conf"]
    assert raw == everything
