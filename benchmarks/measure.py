"""A measure and what it is compared with. Absolute figures move with the machine; ratios hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Measure:
    """`value` in `unit`; `baseline` in the same unit and run, said in words by `against`."""

    name: str
    value: float
    unit: str
    baseline: float | None = None
    against: str = ""
    aim: str = ""
    detail: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.baseline if self.baseline else None

    def cells(self) -> tuple[str, ...]:
        name = f"{self.name} ({self.detail})" if self.detail else self.name
        baseline = f"{readable(self.baseline)} {self.against}" if self.baseline is not None else ""
        ratio = f"{self.ratio:.2f}" if self.ratio is not None else ""
        return name, f"{readable(self.value)} {self.unit}", baseline, ratio, self.aim

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}


def readable(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= size:
            return f"{value / (1e3 if letter == 'k' else size):.2f} {letter}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def percentile(values: Sequence[float], share: float) -> float:
    """
    >>> percentile([1, 2, 3, 4, 5], 0.5)
    3
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
