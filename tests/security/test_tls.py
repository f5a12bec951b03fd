"""HTTPS: the server with a certificate of its own, and clients that trust it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from headrace.access.tls import server_files, trust_file, trust_own
from headrace.cli.api import Api
from headrace.client import Client
from headrace.config import Project, load_project
from headrace.coordinate.supervisor import readiness
from headrace.errors import ConfigError
from tests.security.processes import open_files
from tests.server.running import write_project
from tests.support import free_port, wait_for

TOML = '[server]\ntls_cert = "cert.pem"\ntls_key = "key.pem"\n'


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_project(tmp_path_factory.mktemp("tls"), TOML)
    made = ["-keyout", "key.pem", "-out", "cert.pem", "-addext", "subjectAltName=DNS:localhost"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, *made], cwd=folder, check=True, capture_output=True)
    return folder


def test_it_speaks_https_alone_and_its_own_commands_trust_it(certified: Path) -> None:
    project, port = load_project(certified), free_port()
    url = f"https://127.0.0.1:{port}"
    command = [sys.executable, "-m", "headrace.server.main", "--project", str(certified), "--port", str(port)]
    # As of somebody whose files are open to others.
    with subprocess.Popen(command, stderr=subprocess.DEVNULL, umask=0o022) as server:
        try:
            wait_for(lambda: _is_there(project, url), 60, "the server")
            with Api(url, None, trust=trust_own(project)) as api:
                assert [one["name"] for one in api.get("/v1/views")["views"]] == ["users"]
            with Client(f"https://localhost:{port}", ca=str(certified / "cert.pem")) as client:
                assert client.produce("users", [{"id": "ann"}]).accepted == 1
            # The certificate is for `localhost`, and nobody has heard of who signed it.
            for named, trust in ((url, trust_file(certified / "cert.pem")), (f"https://localhost:{port}", True)):
                with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                    httpx.get(f"{named}/healthz", verify=trust, trust_env=False)
            with pytest.raises(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False)
            # A page of the same name without TLS is another origin.
            headers = {"Origin": f"http://127.0.0.1:{port}"}
            refused = httpx.get(f"{url}/v1/topics", headers=headers, verify=trust_own(project), trust_env=False)  # type: ignore[arg-type]
            assert refused.status_code == 403
            own = httpx.get(f"{url}/v1/topics", headers={"Origin": url}, verify=trust_own(project), trust_env=False)  # type: ignore[arg-type]
            assert own.status_code == 200
            assert open_files(project.data) == []
        finally:
            server.terminate()


def _is_there(project: Project, url: str) -> bool:
    return readiness(url, None, trust=trust_own(project)).waiting_for == ("the engine",)


def test_what_cannot_be_used_is_said(certified: Path, tmp_path: Path) -> None:
    write_project(tmp_path, '[server]\ntls_cert = "cert.pem"\n')
    with pytest.raises(ConfigError, match="`\\[server\\] tls_key` is missing"):
        server_files(load_project(tmp_path))
    write_project(tmp_path, TOML)
    with pytest.raises(ConfigError, match="cannot be used: No such file"):
        server_files(load_project(tmp_path))
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).write_text("nonsense")
    with pytest.raises(ConfigError, match="cannot be used: "):
        server_files(load_project(tmp_path))
