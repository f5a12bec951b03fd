"""Large answers: bounded together, sent piece by piece. A client that does not take its answer is dropped, so that many
slow ones cannot fill the memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.collect.http.bodies import BodyBudget, Share
from headrace.errors import Overloaded
from headrace.server.errors import JSON
from headrace.server.pump import SEND_S

PIECE = 64 * 1024


class LargeAnswer(Response):
    """Counts against the budget until the last byte is handed over. `Overloaded` at once if there is no room."""

    def __init__(
        self,
        body: bytes,
        budget: BodyBudget,
        media_type: str = JSON,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(media_type=media_type, headers=headers)
        self.headers["content-length"] = str(len(body))
        self._share = Share(budget)
        try:
            self._share.take(len(body))
        except Overloaded:
            raise Overloaded("too many large answers are being sent", retry_after=1.0) from None
        self._budget, self._content = budget, memoryview(body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            for start in range(0, max(1, len(self._content)), PIECE):
                piece, last = self._content[start : start + PIECE], start + PIECE >= len(self._content)
                async with asyncio.timeout(SEND_S):
                    await send({"type": "http.response.body", "body": bytes(piece), "more_body": not last})
        except TimeoutError:
            return
        finally:
            self._budget.give_back(self._share.taken)


def json_list(items: Iterable[bytes]) -> bytes:
    """
    >>> json_list([b"1", b"{}"])
    b'[1,{}]'
    """
    return b"[" + b",".join(items) + b"]"
