"""What a collector's rules cost: JSON events in bodies of a thousand, through the gate into the log, against the same
without a collector. In events per second of processor time, which other work on the machine does not change."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import msgspec

from benchmarks.measure import Measure
from headrace.clock import SystemClock
from headrace.collect.base import Outcome, RawEvents
from headrace.collect.decode import EventCollector
from headrace.collect.gate import Arrival
from headrace.collect.gates import Gates
from headrace.config import load_project
from headrace.log.base import TopicSpec
from headrace.log.dead_letters import create_dead_letters
from headrace.log.local.open import LocalLog
from headrace.types import BIGINT, DOUBLE, TIMESTAMP, VARCHAR, Column

EVENTS = 1000
SIGNUPS = TopicSpec(
    "signups",
    key=(Column("USERID", VARCHAR),),
    value=(
        Column("EMAIL", VARCHAR),
        Column("AGE", BIGINT),
        Column("SCORE", DOUBLE),
        Column("IP", VARCHAR),
        Column("ARRIVED", TIMESTAMP),
    ),
)
COLLECTOR = 'type = "http"\ntopic = "signups"\n'
ENRICH = '[enrich]\narrival_time = "arrived"\naddress = "ip"\nuser_agent = "agent"\n'
VALIDATE = (
    '[validate]\nrequired = ["userid"]\n[validate.fields.age]\nmax = 150\n[validate.fields.email]\npattern = "@"\n'
)
PRIVACY = '[privacy]\nhash = ["email"]\ndrop = ["password"]\nkey = "k"\n'
RULES = {
    "a collector without rules": "",
    "three fields added": ENRICH,
    "three checks": VALIDATE,
    "one field hashed, one dropped": PRIVACY,
    "all of these": ENRICH + VALIDATE + PRIVACY,
}


def run(quick: bool = False) -> list[Measure]:
    requests = 10 if quick else 200
    event = {"userid": "u", "email": "you@example.org", "age": 41, "score": 1.5, "password": "hush"}
    raw = RawEvents("signups", msgspec.json.encode([event | {"userid": f"u{n}"} for n in range(EVENTS)]))
    arrived = Arrival(address="192.0.2.7", user_agent="bench", size=len(raw.body))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "headrace.toml").write_text("[log]\nmin_free_bytes = 1\n")
        (folder / "collectors").mkdir()
        project, clock = load_project(folder), SystemClock()
        log = LocalLog(project.log_folder, project.settings.log, clock)
        try:
            create_dead_letters(log)
            log.create_topic(SIGNUPS)
            collector = EventCollector(log, clock, project.settings.collect)
            gates = Gates(project, collector, clock)
            baseline = _rate(lambda: collector.collect(raw), requests)
            measures = []
            for rules, text in RULES.items():
                (folder / "collectors" / "signups.toml").write_text(COLLECTOR + text)
                gates.reload()
                gate = gates.named("signups")
                rate = _rate(lambda gate=gate: gate.collect(raw, arrived), requests)  # type: ignore[misc]
                measures.append(Measure(f"rules: {rules}", rate, "events/s of CPU", baseline, "without a collector"))
            return measures
        finally:
            log.close()


def _rate(collect: Callable[[], Future[Outcome]], requests: int) -> float:
    collect().result(60)
    started = time.process_time()
    for done in [collect() for _ in range(requests)]:
        assert done.result(60).accepted == EVENTS
    return requests * EVENTS / (time.process_time() - started)
