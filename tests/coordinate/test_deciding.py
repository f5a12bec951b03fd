"""Whether a deployment that was compared goes on by itself."""

from __future__ import annotations

import pytest

from headrace.coordinate.comparing import NotCompared
from headrace.coordinate.deciding import decide
from headrace.views.difference import Comparison
from headrace.views.versions import Deployment

SAME = Comparison("a", 1, 2, 9, same=200)
OTHER = Comparison("b", 1, 2, 9, same=198, changed=2)
UNKNOWN = NotCompared("c", "nobody knows")
GONE = "`b` has no `n` any more"
DIFFER = "2 of 200 rows of `b` differ (1.00%)"
NOT_KNOWN = "`c` not compared: nobody knows"


@pytest.mark.parametrize(
    ("gate", "found", "removed", "stage", "detail"),
    [
        (None, [SAME], [], "switching", ""),
        (None, [SAME, OTHER], [], "waiting", f"{DIFFER}: somebody has to approve"),
        (None, [SAME], [GONE], "waiting", f"{GONE}: somebody has to approve"),
        (0.01, [SAME, OTHER], [GONE], "switching", GONE),
        (0.001, [SAME, OTHER], [GONE], "waiting", f"{DIFFER}, and 0.10% may; {GONE}"),
        (None, [UNKNOWN, SAME], [], "waiting", NOT_KNOWN),
        (None, [UNKNOWN, OTHER], [], "waiting", f"{NOT_KNOWN}; {DIFFER}"),
        (0.01, [UNKNOWN, OTHER], [], "waiting", NOT_KNOWN),
    ],
)
def test_what_is_not_known_waits_for_somebody_and_what_differs_does_beyond_the_gate(
    gate: float | None, found: list[Comparison | NotCompared], removed: list[str], stage: str, detail: str
) -> None:
    assert decide(Deployment(1, [], 0, max_changed=gate), found, removed) == (stage, detail)


def test_what_is_approved_goes_on_and_says_what_is_not_known() -> None:
    approved = Deployment(1, [], 0, approved=True)
    assert decide(approved, [OTHER, UNKNOWN], [GONE]) == ("switching", NOT_KNOWN)
