"""Charts begin with what was before somebody looked."""

from __future__ import annotations

from headrace.server.history import Cared
from tests.server.running import Running
from tests.support import wait_for


def test_rates_are_remembered(server: Running) -> None:
    def arrived() -> bool:
        server.send("pageviews", [{"userid": "a"}] * 50)
        past = server.http.get("/v1/overview/history").json()
        assert all(len(rates) == len(past["times_ms"]) for rates in past["rates"].values())
        return any(past["rates"].get("topic:pageviews", [])) and any(past["rates"]["total"])

    wait_for(arrived, 20, "a rate")


def test_how_right_a_view_was_is_remembered(server: Running) -> None:
    history = server.services.history
    history.take_care({"USERS": Cared(50, 1, 7)})
    past = server.http.get("/v1/views/users/check/history").json()
    assert (past["checked"][-1], past["drifted"][-1], past["late"][-1]) == (50, 1, 7)
    assert len(past["times_ms"]) == len(past["late"])
    assert server.http.get("/v1/views/nothing/check/history").status_code == 404
