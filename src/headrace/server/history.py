"""What the rates were over the last ten minutes, so that charts do not begin empty. In memory: news, not state."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.server.models import Overview, RatesHistory

KEPT_S = 600.0
SAMPLE_S = 2.0
TOTAL = "total"

logger = logging.getLogger("headrace.server")


class History:
    """Belongs to one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[tuple[int, dict[str, float]]] = deque(maxlen=int(KEPT_S / SAMPLE_S))

    def take(self, overview: Overview) -> None:
        """Remember the rates of a moment. Most things rest most of the time: only what moves is kept."""
        rates = {node.id: node.rate for node in overview.nodes if node.rate}
        self._samples.append((self._clock.now_ms(), rates | {TOTAL: overview.totals.rate}))

    def rates(self) -> RatesHistory:
        names = sorted({name for _, rates in self._samples for name in rates})
        return RatesHistory(
            [time for time, _ in self._samples],
            {name: [rates.get(name, 0.0) for _, rates in self._samples] for name in names},
        )

    async def run(self, draw: Callable[[], Awaitable[Overview]]) -> None:
        """Sample until cancelled."""
        while True:
            try:
                self.take(await draw())
            except HeadraceError as error:
                logger.warning("no overview to remember: %s", error)
            await asyncio.sleep(SAMPLE_S)
