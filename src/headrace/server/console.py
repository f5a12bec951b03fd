"""The console: static files of the build, each read once and kept, compressed too."""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from headrace.server.endpoint import HTML, Endpoint
from headrace.server.missing import is_ours
from headrace.server.services import Services

FOLDER = Path(__file__).parent.parent / "console"

# Everything comes from here; Svelte sets styles on elements; exported charts are blobs.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        "manifest-src 'self'",
        "worker-src 'self' blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
COMPRESSED = ("text/", "application/javascript", "application/json", "image/svg")

MISSING = b"""<!doctype html><html lang="en"><meta charset="utf-8"><title>Headrace</title>
<style>body{font:16px/1.6 system-ui;max-width:40em;margin:4em auto;padding:0 1em}code{background:#8882}</style>
<h1>Headrace is running</h1>
<p>Its console is not built. In a clone of the repository, <code>make setup</code> builds it; then reload this page.</p>
<p>Everything else is there: <a href="v1/overview">overview</a>, <a href="openapi.json">API</a>,
<a href="metrics">metrics</a>.</p></html>
"""


@dataclass(frozen=True, slots=True)
class Asset:
    body: bytes
    compressed: bytes | None
    media_type: str
    tag: str
    lasting: bool
    """Its name says what is in it, so it may be kept for ever."""


class Console:
    """The files below a folder, by their path. A path is only ever looked up among the names the folder has, so it
    cannot lead anywhere else."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._assets: dict[str, tuple[tuple[int, int], Asset]] = {}

    def find(self, path: str) -> Asset | None:
        """The file of that name; None if there is none."""
        file = self._paths().get(path)
        return None if file is None else self._load(path, file)

    @property
    def built(self) -> bool:
        return (self._folder / "index.html").is_file()

    def _paths(self) -> dict[str, Path]:
        return {file.relative_to(self._folder).as_posix(): file for file in self._folder.rglob("*") if file.is_file()}

    def _load(self, name: str, file: Path) -> Asset:
        stat = file.stat()
        mark = (stat.st_mtime_ns, stat.st_size)
        found = self._assets.get(name)
        if found is None or found[0] != mark:
            found = self._assets[name] = (mark, _asset(name, file.read_bytes()))
        return found[1]


def _asset(name: str, body: bytes) -> Asset:
    media_type = (
        "text/javascript" if name.endswith(".js") else mimetypes.guess_type(name)[0] or "application/octet-stream"
    )
    compressed = gzip.compress(body, 6, mtime=0) if media_type.startswith(COMPRESSED) and len(body) > 1024 else None
    tag = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
    return Asset(body, compressed, media_type, tag, name.startswith("assets/"))


_console = Console()


async def console(request: Request, services: Services) -> Response:
    path = request.path_params.get("path", "").removeprefix("/")
    if is_ours(path):
        raise request.app.state.paths.refusal(f"/{path}")
    if not _console.built:
        if path:
            raise HTTPException(404)
        return Response(MISSING, media_type=HTML, headers=_headers(False, None))
    asset = await services.run(_console.find, path or "index.html")
    if asset is not None:
        return asset_response(request, asset)
    if path.startswith("assets/") or "." in path.rpartition("/")[2]:
        raise HTTPException(404)
    return RedirectResponse(page_of(path))


def page_of(path: str) -> str:
    """Where the console shows what somebody typed as a path. Relative, so that a proxy's prefix is kept.

    >>> page_of("log/orders"), page_of("sql")
    ('../#/log/orders', './#/sql')
    """
    return f"{'../' * path.count('/') or './'}#/{quote(path)}"


def asset_response(request: Request, asset: Asset) -> Response:
    headers = _headers(asset.lasting, asset.tag)
    if asset.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    body = asset.body
    if asset.compressed is not None:
        headers["vary"] = "accept-encoding"
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers["content-encoding"] = "gzip"
            body = asset.compressed
    return Response(body, media_type=asset.media_type, headers=headers)


def _headers(lasting: bool, tag: str | None) -> dict[str, str]:
    headers = {
        "cache-control": "public, max-age=31536000, immutable" if lasting else "no-cache",
        "content-security-policy": CONTENT_SECURITY_POLICY,
        "referrer-policy": "no-referrer",
    }
    return headers | ({"etag": tag} if tag else {})


ENDPOINTS = (
    Endpoint(method="GET", path="/", handler=console, summary="The console", role=None, answers={200: (HTML,)}),
    Endpoint(
        method="GET",
        path="/{path:path}",
        handler=console,
        summary="The console's files; the path of a page leads to it",
        role=None,
        answers={200: (HTML,), 307: None},
    ),
)
