"""TLS of the server, and how clients trust it."""

from __future__ import annotations

import ssl
from pathlib import Path

from headrace.config import Project
from headrace.errors import ConfigError


def server_files(project: Project) -> tuple[Path, Path] | None:
    """Return the files of the certificate and its key; None without TLS. `ConfigError` if they cannot be used."""
    settings = project.settings.server
    if not settings.tls_cert and not settings.tls_key:
        return None
    found = []
    for name, setting in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        if not setting:
            raise ConfigError(f"`[server] {name}` is missing", hint=f'{name} = "…", a PEM file')
        found.append(project.folder / setting)
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(found[0], found[1])
    except (OSError, ssl.SSLError) as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(f"`[server] tls_cert` and `tls_key` cannot be used: {reason}") from error
    return found[0], found[1]


def trust_file(file: Path | str) -> ssl.SSLContext:
    """Return what trusts the certificates in a file, and those they sign."""
    try:
        return ssl.create_default_context(cafile=str(file))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"`{file}` holds no certificates: {error}") from error


def trust_own(project: Project) -> ssl.SSLContext | None:
    """Return what the project's own commands and processes trust: its own certificate, whatever name it is for. None
    without TLS."""
    files = server_files(project)
    if files is None:
        return None
    context = trust_file(files[0])
    # The very certificate is known, so neither its signer nor its name has to be.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context
