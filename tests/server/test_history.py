"""Charts begin with what was before somebody looked."""

from __future__ import annotations

from tests.server.running import Running
from tests.support import wait_for


def test_rates_are_remembered(server: Running) -> None:
    def arrived() -> bool:
        server.send("pageviews", [{"userid": "a"}] * 50)
        past = server.http.get("/v1/overview/history").json()
        assert all(len(rates) == len(past["times_ms"]) for rates in past["rates"].values())
        return any(past["rates"].get("topic:pageviews", [])) and any(past["rates"]["total"])

    wait_for(arrived, 20, "a rate")
