"""The schema registry over a log: subjects, versions, ids, compatibility. Safe to use from several threads and, since
late events have no effect, from several processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from headrace.log.base import Log
from headrace.log.registry.base import (
    Level,
    Problem,
    Reference,
    RegistryError,
    Schema,
    SubjectVersion,
    invalid_schema,
    schema_not_found,
    subject_not_found,
    version_not_found,
)
from headrace.log.registry.following import SchemaLog
from headrace.log.registry.parsed import Parsed, parse_schema, problems
from headrace.log.registry.settings import Settings
from headrace.log.registry.state import (
    Event,
    ReferenceJson,
    State,
    fingerprint,
    new_event,
)

_MAX_REFERENCES = 1000


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """Between a schema and one version of its subject."""

    version: int
    problems: tuple[Problem, ...]

    def lines(self) -> list[str]:
        return [f"version {self.version}: {problem}" for problem in self.problems]


class Incompatible(RegistryError):
    """A schema that its subject's compatibility level does not allow."""

    def __init__(self, subject: str, level: Level, found: Sequence[Incompatibility]) -> None:
        lines = [line for one in found for line in one.lines()]
        super().__init__(
            409,
            f"the schema is incompatible with an earlier one of subject `{subject}` ({level}): {'; '.join(lines[:3])}",
            problems=lines,
            subject=subject,
            compatibility=level,
        )
        self.subject = subject


class Registry:
    def __init__(self, log: Log) -> None:
        self._followed = SchemaLog(log)
        self._lock, self._state = self._followed.lock, self._followed.state
        self.settings = Settings(self._followed)
        self._parse = lru_cache(maxsize=512)(self._parse_stored)

    def refresh(self) -> None:
        """Apply what others wrote. Cheap when nothing is new."""
        self._followed.refresh()

    # Subjects and versions

    def subjects(self, prefix: str = "", deleted: bool = False, deleted_only: bool = False) -> list[str]:
        with self._lock:
            return sorted(
                subject
                for subject, versions in self._state.subjects.items()
                if subject.startswith(prefix)
                and (
                    all(one.deleted for one in versions)
                    if deleted_only
                    else deleted or any(not one.deleted for one in versions)
                )
            )

    def versions(self, subject: str, deleted: bool = False, deleted_only: bool = False) -> list[SubjectVersion]:
        """`RegistryError` 40401 if there is none."""
        with self._lock:
            found = self._state.versions(subject, deleted or deleted_only)
        if deleted_only:
            found = [one for one in found if one.deleted]
        if not found:
            raise subject_not_found(subject)
        return found

    def versions_or_none(self, subject: str) -> list[SubjectVersion]:
        """Empty if there are none."""
        with self._lock:
            return self._state.versions(subject)

    def version(self, subject: str, version: int | None, deleted: bool = False) -> SubjectVersion:
        """The newest one if `version` is None."""
        with self._lock:
            if not self._state.versions(subject, deleted):
                raise subject_not_found(subject)
            found = self._state.versions(subject, deleted)
        if version is None:
            return found[-1]
        for one in found:
            if one.version == version:
                return one
        raise version_not_found(subject, version)

    def schema(self, schema_id: int) -> Schema:
        with self._lock:
            found = self._state.schemas.get(schema_id)
        if found is None:
            raise schema_not_found(f"schema {schema_id} not found")
        return found

    def uses(self, schema_id: int, deleted: bool = False) -> list[SubjectVersion]:
        """Where an id is registered."""
        self.schema(schema_id)
        with self._lock:
            everything = [one for versions in self._state.subjects.values() for one in versions]
        return [one for one in everything if one.id == schema_id and (deleted or not one.deleted)]

    def lookup(self, subject: str, schema: Schema, normalize: bool = False, deleted: bool = False) -> SubjectVersion:
        """The version a schema is; 40401 without the subject, 40403 without the schema."""
        self.refresh()
        canonical = self.canonical(schema, normalize or self.settings.config(subject).normalize)
        mark = fingerprint(canonical)
        with self._lock:
            versions = self._state.versions(subject, deleted)
            found = self._state.ids.get(mark)
        if not versions:
            raise subject_not_found(subject)
        for one in reversed(versions):
            if one.id == found:
                return one
        raise schema_not_found()

    def referenced_by(self, subject: str, version: int) -> list[int]:
        """Ids of schemas that use this one."""
        self.version(subject, version, deleted=True)
        with self._lock:
            live = {one.id for versions in self._state.subjects.values() for one in versions if not one.deleted}
            return sorted(
                id_
                for id_, schema in self._state.schemas.items()
                if id_ in live and any((r.subject, r.version) == (subject, version) for r in schema.references)
            )

    # Registering

    def canonical(self, schema: Schema, normalize: bool = False) -> Schema:
        """As it would be kept; 42201 if it is not valid."""
        return replace(schema, text=self._read(schema, normalize).text)

    def _read(self, schema: Schema, normalize: bool) -> Parsed:
        return parse_schema(schema.type, schema.text, self.references(schema), normalize)

    def register(
        self, subject: str, schema: Schema, normalize: bool = False, id_: int = 0, version: int = 0
    ) -> SubjectVersion:
        """The version it is; the one it was already if it was. `Incompatible` if the level does not allow it. `id_` and
        `version` are given only in the mode IMPORT."""
        check_subject(subject)
        registered: list[SubjectVersion] = []
        self.refresh()
        # Outside of the lock: a large schema takes its time, and must not take that of others.
        parsed = self._read(schema, normalize or self.settings.config(subject).normalize)
        canonical = replace(schema, text=parsed.text)

        def make(state: State) -> Event | None:
            self._check_mode(state, subject, id_)
            known = state.ids.get(fingerprint(canonical))
            for one in state.versions(subject):
                if one.id == known and not (version and version != one.version):
                    registered[:] = [one]
                    return None
            found = () if id_ else self._incompatibilities(state, subject, parsed)
            if found:
                raise Incompatible(subject, state.config(subject).compatibility, found)
            number = version or max((one.version for one in state.versions(subject, True)), default=0) + 1
            new = SubjectVersion(subject, number, id_ or known or state.last_id + 1)
            _check_id(state, new.id, canonical)
            registered[:] = [new]
            return _registered(new, canonical)

        self._followed.change(make)
        return registered[0]

    def _check_mode(self, state: State, subject: str, id_: int) -> None:
        mode = state.mode(subject)
        if mode.startswith("READONLY"):
            raise RegistryError(42205, f"subject `{subject}` is in the mode {mode}", hint="set it to READWRITE")
        if id_ and mode != "IMPORT":
            raise RegistryError(42205, f"an id can be given only in the mode IMPORT; `{subject}` is in {mode}")

    # Compatibility

    def check(
        self, subject: str, schema: Schema, version: int | str | None = "all", normalize: bool = False
    ) -> tuple[Incompatibility, ...]:
        """What would stand against registering it: by the subject's level, or with one version (None: the newest)."""
        self.refresh()
        parsed = self._read(schema, normalize)
        with self._lock:
            if version == "all":
                return self._incompatibilities(self._state, subject, parsed)
        if isinstance(version, str):
            raise RegistryError(42202, f"`{version}` is not a version")
        one = self.version(subject, version)
        return self._against(parsed, [one], self.settings.config(subject).compatibility)

    def _incompatibilities(self, state: State, subject: str, schema: Parsed) -> tuple[Incompatibility, ...]:
        level = state.config(subject).compatibility
        versions = state.versions(subject)
        if level == "NONE" or not versions:
            return ()
        return self._against(schema, versions if level.endswith("TRANSITIVE") else versions[-1:], level)

    def _against(self, new: Parsed, versions: Sequence[SubjectVersion], level: Level) -> tuple[Incompatibility, ...]:
        found: list[Incompatibility] = []
        for one in reversed(versions):
            old = self.parsed(one.id)
            against: list[Problem] = []
            if level.startswith(("BACKWARD", "FULL")):
                against += problems(new, old)
            if level.startswith(("FORWARD", "FULL")):
                against += [_forward(problem) for problem in problems(old, new)]
            if against:
                found.append(Incompatibility(one.version, tuple(against)))
        return tuple(found)

    def parsed(self, schema_id: int) -> Parsed:
        return self._parse(schema_id)

    def _parse_stored(self, schema_id: int) -> Parsed:
        schema = self.schema(schema_id)
        return parse_schema(schema.type, schema.text, self.references(schema))

    def references(self, schema: Schema) -> dict[str, str]:
        """All schemas it refers to, also through others: name → text, each after those it needs itself."""
        found: dict[str, str] = {}
        self._collect(schema.references, found, ())
        return found

    def _collect(self, references: Sequence[Reference], found: dict[str, str], above: tuple[Reference, ...]) -> None:
        for reference in references:
            if reference in above or len(found) > _MAX_REFERENCES:
                raise invalid_schema("schemas refer to each other in a circle, or to too many others")
            try:
                one = self.version(reference.subject, None if reference.version == -1 else reference.version, True)
            except RegistryError:
                raise invalid_schema(
                    f"no version {reference.version} of subject `{reference.subject}` for the reference "
                    f"`{reference.name}`"
                ) from None
            needed = self.schema(one.id)
            self._collect(needed.references, found, (*above, reference))
            found.setdefault(reference.name, needed.text)

    # Deleting

    def delete_subject(self, subject: str, permanent: bool = False) -> list[int]:
        deleted: list[int] = []

        def make(state: State) -> Event:
            self._check_mode(state, subject, 0)
            versions = state.versions(subject, permanent)
            if not versions:
                raise _nothing_to_delete(state, subject)
            if permanent and any(not one.deleted for one in versions):
                raise RegistryError(40405, f"subject `{subject}` is not deleted yet", hint="delete it softly first")
            for one in versions:
                self._check_unused(subject, one.version)
            deleted[:] = [one.version for one in versions]
            return new_event("removed" if permanent else "deleted", subject)

        self._followed.change(make)
        return deleted

    def delete_version(self, subject: str, version: int | None, permanent: bool = False) -> int:
        deleted: list[int] = []

        def make(state: State) -> Event:
            self._check_mode(state, subject, 0)
            one = self.version(subject, version, deleted=permanent)
            if permanent and not one.deleted:
                message = f"version {one.version} of subject `{subject}` is not deleted yet"
                raise RegistryError(40407, message, hint="delete it softly first")
            self._check_unused(subject, one.version)
            deleted[:] = [one.version]
            return new_event("removed" if permanent else "deleted", subject, version=one.version)

        self._followed.change(make)
        return deleted[0]

    def _check_unused(self, subject: str, version: int) -> None:
        users = self.referenced_by(subject, version)
        if users:
            message = f"version {version} of subject `{subject}` is used by the schemas {', '.join(map(str, users))}"
            raise RegistryError(42206, message, hint="delete those first")


def check_subject(subject: str) -> None:
    if not subject or len(subject) > 1000 or any(ord(character) < 32 for character in subject):
        raise RegistryError(42208, f"`{subject[:80]}` is not a subject's name")


def _registered(one: SubjectVersion, schema: Schema) -> Event:
    return new_event(
        "registered",
        one.subject,
        version=one.version,
        id=one.id,
        schema=schema.text,
        schema_type=schema.type,
        references=[ReferenceJson(r.name, r.subject, r.version) for r in schema.references],
        extra=dict(schema.extra),
    )


def _check_id(state: State, id_: int, schema: Schema) -> None:
    known = state.schemas.get(id_)
    if known is not None and fingerprint(known) != fingerprint(schema):
        raise RegistryError(42205, f"the id {id_} is taken by another schema")


def _forward(problem: Problem) -> Problem:
    return replace(problem, message=f"for who reads with the older one: {problem.message}")


def _nothing_to_delete(state: State, subject: str) -> RegistryError:
    if state.versions(subject, deleted=True):
        return RegistryError(
            40404, f"subject `{subject}` is deleted already", hint="permanent=true removes it for good"
        )
    return subject_not_found(subject)
