"""`headrace schema`: the registry's subjects and their schemas."""

from __future__ import annotations

import difflib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from headrace.cli.options import JsonOption, KeyOption, ProjectOption, UrlOption, open_api
from headrace.cli.output import print_json, print_table
from headrace.errors import HeadraceError, UsageError

if TYPE_CHECKING:
    from headrace.cli.api import Api

app = typer.Typer(
    name="schema", help="The schema registry: what topics hold, and how it may change.", no_args_is_help=True
)
SubjectArgument = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="What a schema describes: `TOPIC-value` or `TOPIC-key`, mostly.")
]
FileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="The schema: .avsc, .json or .proto; `-` is standard input.")
]
TypeOption = Annotated[
    str | None,
    typer.Option("--type", help="AVRO, JSON or PROTOBUF; by default as the file's name ends.", metavar="TYPE"),
]
ReferenceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--reference", help="A schema it uses: NAME=SUBJECT:VERSION. Can be given several times.", metavar="REF"
    ),
]
VersionOption = Annotated[int | None, typer.Option("--version", help="Which version; the newest by default.", min=1)]
TYPES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


def _call(api: Api, method: str, path: str, body: Any = None, **query: Any) -> Any:
    """What the registry answers; its errors as ours."""
    given = {name: value for name, value in query.items() if value is not None}
    options = {"json": body} if body is not None else {}
    answer = api.request(method, f"/registry/{path}", params=given, **options)
    if "error_code" in answer and "message" in answer:
        lines = [*answer.get("problems", ()), *(f"breaks {one}" for one in answer.get("breaks", ()))]
        message = answer["message"].partition(": version ")[0] if lines else answer["message"]
        raise HeadraceError(message, detail="\n  ".join(lines) or None, hint=answer.get("hint"))
    return answer["result"] if set(answer) == {"result"} else answer


def _subject(name: str) -> str:
    return f"subjects/{quote(name, safe='')}"


def _request(file: Path, type_: str | None, references: list[str] | None) -> dict[str, Any]:
    found = (type_ or TYPES.get(file.suffix.lower(), "")).upper()
    if not found:
        raise UsageError(f"cannot tell what kind of schema `{file}` is", hint="say --type AVRO, JSON or PROTOBUF")
    text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    return {"schema": text, "schemaType": found, "references": [_reference(one) for one in references or ()]}


def _reference(text: str) -> dict[str, Any]:
    name, _, place = text.partition("=")
    subject, _, version = place.rpartition(":")
    if not name or not subject or not version.isdecimal():
        raise UsageError(f"`{text}` is not a reference", hint="NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


@app.command("list", epilog="Example:  headrace schema list")
def list_schemas(
    deleted: Annotated[bool, typer.Option("--deleted", help="Softly deleted ones too.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """All subjects, with their newest version."""
    with open_api(project, url, key) as api:
        everything = _call(api, "GET", "schemas", deleted=str(deleted).lower())
        newest = {one["subject"]: one for one in everything}
        rows = []
        for subject, one in newest.items():
            level = _call(api, "GET", f"config/{quote(subject, safe='')}", defaultToGlobal="true")
            versions = sum(other["subject"] == subject for other in everything)
            rows.append(
                {
                    "subject": subject,
                    "type": one.get("schemaType", "AVRO"),
                    "version": one["version"],
                    "id": one["id"],
                    "versions": versions,
                    "compatibility": level["compatibilityLevel"],
                    "deleted": one.get("deleted", False),
                }
            )
    if as_json:
        print_json({"subjects": rows})
        return
    print_table(
        ["subject", "type", "newest", "id", "versions", "compatibility", ""],
        [
            [
                r["subject"],
                r["type"],
                r["version"],
                r["id"],
                r["versions"],
                r["compatibility"],
                "deleted" * r["deleted"],
            ]
            for r in rows
        ],
        empty="no schemas; declaring a stream with VALUE_FORMAT='AVRO' makes one, or:  headrace schema register",
    )


@app.command("show", epilog="Example:  headrace schema show orders-value --version 2")
def show_schema(
    subject: SubjectArgument,
    version: VersionOption = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """One version of a subject's schema."""
    with open_api(project, url, key) as api:
        found = _call(api, "GET", f"{_subject(subject)}/versions/{version or 'latest'}")
    if as_json:
        print_json(found)
        return
    print(f"{subject} version {found['version']}, id {found['id']}, {found.get('schemaType', 'AVRO')}", file=sys.stderr)
    for reference in found.get("references", ()):
        print(f"  uses {reference['name']} = {reference['subject']}:{reference['version']}", file=sys.stderr)
    print(pretty(found))


def pretty(found: dict[str, Any]) -> str:
    """A schema as people read it."""
    if found.get("schemaType") == "PROTOBUF":
        return str(found["schema"]).rstrip("\n")
    return json.dumps(json.loads(found["schema"]), indent=2, ensure_ascii=False)


@app.command("register", epilog="Example:  headrace schema register orders-value order.avsc")
def register_schema(
    subject: SubjectArgument,
    file: FileArgument,
    type_: TypeOption = None,
    reference: ReferenceOption = None,
    normalize: Annotated[bool, typer.Option("--normalize", help="Keep it in normal form.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Register a schema. The same one again changes nothing; an incompatible one is refused, with the reasons."""
    body = _request(file, type_, reference)
    with open_api(project, url, key) as api:
        made = _call(api, "POST", f"{_subject(subject)}/versions", body, normalize=str(normalize).lower())
    if as_json:
        print_json(made)
    else:
        print(f"`{subject}` version {made['version']} has the id {made['id']}")


@app.command("check", epilog="Example:  headrace schema check orders-value order.avsc")
def check_schema(
    subject: SubjectArgument,
    file: FileArgument,
    version: Annotated[
        int | None, typer.Option("--version", help="Only against this one; by default as the level says.", min=1)
    ] = None,
    type_: TypeOption = None,
    reference: ReferenceOption = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Would a schema be accepted? Says what stands against it, and what it would break. Exit 1 if it would not."""
    body = _request(file, type_, reference)
    path = f"compatibility/{_subject(subject)}/versions" + (f"/{version}" if version else "")
    with open_api(project, url, key) as api:
        found = _call(api, "POST", path, body, verbose="true")
    if as_json:
        print_json(found)
    elif found["is_compatible"]:
        print(f"compatible: `{subject}` would take it")
    else:
        print(f"incompatible: `{subject}` would not take it")
        for message in found["messages"]:
            print(f"  {message}")
        if found["breaks"]:
            print(f"it would break {', '.join(found['breaks'])}")
    raise typer.Exit(0 if found["is_compatible"] else 1)


@app.command("diff", epilog="Example:  headrace schema diff orders-value 1 2")
def diff_schemas(
    subject: SubjectArgument,
    old: Annotated[int | None, typer.Argument(metavar="[OLD]", help="The one before the newest by default.")] = None,
    new: Annotated[int | None, typer.Argument(metavar="[NEW]", help="The newest by default.")] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """What changed between two versions, line by line."""
    with open_api(project, url, key) as api:
        versions = _call(api, "GET", f"{_subject(subject)}/versions")
        last = new or versions[-1]
        before = [one for one in versions if one < last]
        if old is None and not before:
            raise UsageError(f"`{subject}` has nothing before version {last} to compare it with")
        pair = [_call(api, "GET", f"{_subject(subject)}/versions/{one}") for one in (old or before[-1], last)]
    first, second = pair
    lines = list(
        difflib.unified_diff(
            pretty(first).splitlines(),
            pretty(second).splitlines(),
            f"{subject} version {first['version']}",
            f"{subject} version {second['version']}",
            lineterm="",
        )
    )
    if as_json:
        print_json({"subject": subject, "old": first["version"], "new": second["version"], "diff": lines})
    else:
        print("\n".join(lines) if lines else "no difference")


@app.command("delete", epilog="Example:  headrace schema delete orders-value --version 1")
def delete_schema(
    subject: SubjectArgument,
    version: Annotated[int | None, typer.Option("--version", help="Only this one.", min=1)] = None,
    permanent: Annotated[bool, typer.Option("--permanent", help="For good; only what is softly deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a subject, or one version. Softly: what was written with it can still be read."""
    what = f"version {version} of `{subject}`" if version else f"`{subject}` with all its versions"
    if permanent and not yes:
        typer.confirm(f"delete {what} for good?", abort=True)
    path = _subject(subject) + (f"/versions/{version}" if version else "")
    with open_api(project, url, key) as api:
        found = _call(api, "DELETE", path, permanent=str(permanent).lower())
    deleted = found if isinstance(found, list) else [found]
    if as_json:
        print_json({"subject": subject, "deleted": deleted, "permanent": permanent})
    else:
        print(f"deleted {what}" + (" for good" if permanent else ""))


@app.command("config", epilog="Example:  headrace schema config orders-value --level FULL")
def configure(
    subject: Annotated[
        str | None, typer.Argument(metavar="[SUBJECT]", help="By default all that have none of their own.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(
            help="NONE, BACKWARD, FORWARD or FULL, or one of these with _TRANSITIVE; `default` for that of all.",
            metavar="LEVEL",
        ),
    ] = None,
    project: ProjectOption = None,
    url: UrlOption = None,
    key: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Which changes are allowed: show the compatibility level, or set it."""
    path = "config" + (f"/{quote(subject, safe='')}" if subject else "")
    with open_api(project, url, key) as api:
        if level is not None and level.lower() == "default":
            _call(api, "DELETE", path)
        elif level is not None:
            _call(api, "PUT", path, {"compatibility": level})
        found = _call(api, "GET", path, defaultToGlobal="true")
    if as_json:
        print_json({"subject": subject, "compatibility": found["compatibilityLevel"]})
    else:
        print(f"{f'`{subject}`' if subject else 'subjects without their own level'}: {found['compatibilityLevel']}")
