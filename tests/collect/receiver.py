"""Somebody who is posted to: a real HTTP server, in a thread of the test."""

from __future__ import annotations

import hashlib
import hmac
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from headrace.collect.tickets.callbacks import SIGNATURE


class Receiver:
    """A caller's server: answers as told, and keeps what it got."""

    def __init__(self, *answers: int) -> None:
        self.answers = list(answers)
        self.got: list[tuple[bytes, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                receiver.got.append((body, self.headers[SIGNATURE]))
                self.send_response(receiver.answers.pop(0) if receiver.answers else 200)
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/results"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


def signature_is_right(secret: bytes, body: bytes, header: str) -> bool:
    time, _, signed = header.partition(",v1=")
    wanted = hmac.new(secret, time.removeprefix("t=").encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(wanted, signed)
