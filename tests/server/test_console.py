"""Static files: the page for every path of its own making, files as they are, nothing from anywhere else."""

from __future__ import annotations

import gzip
import socket
from pathlib import Path

import pytest
from starlette.requests import Request

from headrace.server.console import Console, asset_response
from tests.server.running import Running


@pytest.fixture
def built(tmp_path: Path) -> Console:
    folder = tmp_path / "console"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html>page")
    (folder / "assets" / "app-abc.js").write_text("let a = 1;\n" * 500)
    (tmp_path / "secret.txt").write_text("secret")
    return Console(folder)


def request(**headers: str) -> Request:
    pairs = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": pairs})


def test_pages_and_files(built: Console) -> None:
    page = built.find("index.html")
    assert page is not None
    assert built.find("assets/app-abc.js") != page
    for missing in ("views/users", "assets/gone.js", "favicon.ico", "deep/thing.map"):
        assert built.find(missing) is None


@pytest.mark.parametrize(
    "path", ["../secret.txt", "assets/../../secret.txt", "/etc/passwd", "..%2fsecret.txt", "a\x00.js"]
)
def test_nothing_from_elsewhere(built: Console, path: str) -> None:
    found = built.find(path)
    assert found is None or b"secret" not in found.body


def test_files_are_compressed_kept_and_not_sent_twice(built: Console) -> None:
    asset, page = built.find("assets/app-abc.js"), built.find("index.html")
    assert asset is not None
    assert page is not None
    plain, packed = asset_response(request(), asset), asset_response(request(accept_encoding="gzip, br"), asset)
    assert gzip.decompress(bytes(packed.body)) == bytes(plain.body) == asset.body
    assert packed.headers["content-encoding"] == "gzip"
    assert "immutable" in plain.headers["cache-control"]
    assert asset_response(request(), page).headers["cache-control"] == "no-cache"
    assert asset_response(request(if_none_match=asset.tag), asset).status_code == 304


def test_a_new_build_is_seen_without_a_restart(built: Console, tmp_path: Path) -> None:
    assert built.find("index.html") is not None
    (tmp_path / "console" / "index.html").write_text("<!doctype html>another page")
    found = built.find("index.html")
    assert found is not None
    assert b"another" in found.body


def test_the_page_is_served_with_a_policy(server: Running) -> None:
    answer = server.http.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path", ["/../../../../etc/passwd", "/assets/..%2f..%2f..%2fserver/main.py", "/%2e%2e/%2e%2e/etc/passwd"]
)
def test_paths_that_climb(server: Running, path: str) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400", b"HTTP/1.1 200", b"HTTP/1.1 307 "))
    assert b"root:" not in answer
    assert b"granian" not in answer.partition(b"\r\n\r\n")[2]


def test_the_path_of_a_page_leads_to_it_however_deep(server: Running) -> None:
    for path, page in [("/log/orders", "../#/log/orders"), ("/sql", "./#/sql"), ("/a/b/c", "../../#/a/b/c")]:
        answer = server.http.get(path)
        assert (answer.status_code, answer.headers["location"]) == (307, page)
    assert server.http.get("/assets/gone.js").status_code == 404
