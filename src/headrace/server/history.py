"""What the rates were over the last ten minutes, and how right the views were over the last hours, so that charts do
not begin empty. In memory: news, not state."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from headrace.clock import Clock
from headrace.errors import HeadraceError
from headrace.server.models.overview import Overview, RatesHistory

KEPT_S = 600.0
SAMPLE_S = 2.0
TOTAL = "total"
CARE_KEPT_S = 6 * 3600.0
CARE_SAMPLE_S = 10.0

logger = logging.getLogger("headrace.server")


@dataclass(frozen=True, slots=True)
class Cared:
    """Of one view at one moment, since the server began: rows computed again; and those that differ now, and all that
    ever came too late."""

    checked: int
    drifted: int
    late: int


class History:
    """Belongs to one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._samples: deque[tuple[int, dict[str, float]]] = deque(maxlen=int(KEPT_S / SAMPLE_S))
        self._care: deque[tuple[int, Mapping[str, Cared]]] = deque(maxlen=int(CARE_KEPT_S / CARE_SAMPLE_S))
        self._next_care = float("-inf")

    def take(self, overview: Overview) -> None:
        """Remember the rates of a moment. Most things rest most of the time: only what moves is kept."""
        rates = {node.id: node.rate for node in overview.nodes if node.rate}
        self._samples.append((self._clock.now_ms(), rates | {TOTAL: overview.totals.rate}))

    def take_care(self, views: Mapping[str, Cared]) -> None:
        """Remember how right the views are."""
        self._care.append((self._clock.now_ms(), views))

    def rates(self) -> RatesHistory:
        names = sorted({name for _, rates in self._samples for name in rates})
        return RatesHistory(
            [time for time, _ in self._samples],
            {name: [rates.get(name, 0.0) for _, rates in self._samples] for name in names},
        )

    def care(self, view: str) -> list[tuple[int, Cared]]:
        """Of one view, oldest first."""
        return [(time, views[view]) for time, views in self._care if view in views]

    async def run(
        self, draw: Callable[[], Awaitable[Overview]], look: Callable[[], Awaitable[Mapping[str, Cared]]]
    ) -> None:
        """Sample until cancelled."""
        while True:
            try:
                self.take(await draw())
                if self._clock.monotonic() >= self._next_care:
                    self._next_care = self._clock.monotonic() + CARE_SAMPLE_S
                    self.take_care(await look())
            except HeadraceError as error:
                logger.warning("no overview to remember: %s", error)
            except Exception:
                # Nobody would begin it again.
                logger.exception("no overview to remember")
            await asyncio.sleep(SAMPLE_S)
