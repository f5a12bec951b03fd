"""Compatibility levels and modes, of subjects and of all that have none of their own."""

from __future__ import annotations

from headrace.log.registry.base import GLOBAL, LEVELS, MODES, Config, Mode, RegistryError
from headrace.log.registry.following import SchemaLog
from headrace.log.registry.state import Event, State, new_event


class Settings:
    def __init__(self, followed: SchemaLog) -> None:
        self._followed = followed

    def config(self, subject: str = GLOBAL, own: bool = False) -> Config:
        """`own`: 40408 unless the subject has one of its own."""
        with self._followed.lock:
            if own and subject not in self._followed.state.configs:
                raise RegistryError(40408, f"subject `{subject}` has no compatibility level of its own")
            return self._followed.state.config(subject)

    def set_config(self, subject: str, level: str | None, normalize: bool | None = None) -> Config:
        if level is not None and level.upper() not in LEVELS:
            raise RegistryError(42203, f"`{level}` is not a compatibility level", hint=f"{', '.join(LEVELS)}")
        upper = level.upper() if level is not None else None
        self._followed.change(lambda state: new_event("config", subject, compatibility=upper, normalize=normalize))
        return self.config(subject)

    def delete_config(self, subject: str) -> Config:
        """Back to the global one, or to the default. Returns what it was."""
        before = self.config(subject, own=subject != GLOBAL)
        self._followed.change(lambda state: new_event("config", subject))
        return before

    def mode(self, subject: str = GLOBAL, own: bool = False) -> Mode:
        with self._followed.lock:
            if own and subject not in self._followed.state.modes:
                raise RegistryError(40409, f"subject `{subject}` has no mode of its own")
            return self._followed.state.mode(subject)

    def set_mode(self, subject: str, mode: str, force: bool = False) -> Mode:
        if mode.upper() not in MODES:
            raise RegistryError(42204, f"`{mode}` is not a mode", hint=f"{', '.join(MODES)}")

        def make(state: State) -> Event:
            if mode.upper() == "IMPORT" and not force and (state.versions(subject) if subject else state.subjects):
                raise RegistryError(42205, "IMPORT is for what has no schemas yet", hint="use force=true")
            return new_event("mode", subject, mode=mode.upper())

        self._followed.change(make)
        return self.mode(subject)

    def delete_mode(self, subject: str) -> Mode:
        before = self.mode(subject, own=subject != GLOBAL)
        self._followed.change(lambda state: new_event("mode", subject))
        return before

    def contexts(self) -> list[str]:
        with self._followed.lock:
            named = {subject.split(":")[1] for subject in self._followed.state.subjects if subject.startswith(":.")}
        return sorted({".", *named})
