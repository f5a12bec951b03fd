"""Alerts over HTTP: files make them, a topic's dead letters fire one, its destination is told."""

from __future__ import annotations

import msgspec
import pytest

from headrace.server.models.alerts import AlertModel, AlertsAnswer, AlertTrials
from tests.server.running import Running
from tests.support import wait_for

pytestmark = pytest.mark.slow

ALERT = """
watch = "dead_letters"
topic = "pageviews"
description = "somebody sends what does not fit"
[[to]]
topic = "users"
"""
NOWHERE = "topic `nowhere` does not exist"


def alert(server: Running, name: str = "misfits") -> AlertModel:
    answer = server.http.get(f"/v1/alerts/{name}")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=AlertModel)


def test_a_file_is_an_alert_that_fires_and_tells(server: Running) -> None:
    folder = server.services.project.folder / "alerts"
    folder.mkdir()
    (folder / "misfits.toml").write_text(ALERT)
    (folder / "broken.toml").write_text("watch = 3")
    try:
        wait_for(lambda: [one.subject for one in alert(server).subjects] == ["pageviews"], 20, "the first look")
        server.send("pageviews", {"userid": 7})
        wait_for(lambda: alert(server).state == "firing", 20, "the alert")
        wait_for(lambda: alert(server).destinations[0].told_ms is not None, 20, "the topic")
        assert (alert(server).destinations[0].waiting, alert(server).destinations[0].error) == (0, None)
        (folder / "misfits.toml").write_text(f'{ALERT}[[to]]\ntopic = "nowhere"')
        found = msgspec.json.decode(server.http.get("/v1/alerts").content, type=AlertsAnswer)
        assert [(one.name, one.state) for one in found.alerts] == [("misfits", "firing")]
        assert found.problems[0].file == "alerts/broken.toml"
        trials = msgspec.json.decode(server.http.post("/v1/alerts/misfits/test").content, type=AlertTrials)
        assert [(one.to, one.error) for one in trials.told] == [("topic users", None), ("topic nowhere", NOWHERE)]
        assert 'headrace_alert_firing{alert="misfits"} 1.0' in server.http.get("/metrics").text
        assert server.http.get("/v1/alerts/nothing").status_code == 404
    finally:
        for file in folder.iterdir():
            file.unlink()
    wait_for(lambda: server.http.get("/v1/alerts").json()["alerts"] == [], 20, "its end")
