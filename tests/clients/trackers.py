"""The real Python clients of the protocols, sending numbered events: `python -m tests.clients.trackers PORT COUNT`.

Each is used as its documentation says, with its own way of retrying; slowly enough that a server can be killed while
they send. Ends when each has handed over all it had, or fails.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

PATIENCE_S = 240.0
PACE_S = 0.01


def numbers(count: int) -> Iterator[int]:
    """One after the other, with pauses."""
    pause = threading.Event()
    for number in range(count):
        yield number
        pause.wait(PACE_S)


def segment(port: int, count: int) -> None:
    from segment.analytics.client import Client

    failed: list[Any] = []
    client = Client(
        "w1",
        host=f"http://127.0.0.1:{port}",
        on_error=lambda error, items: failed.append(error),
        gzip=True,
        max_retries=1000,
        upload_size=20,
        upload_interval=0.05,
    )
    for number in numbers(count):
        client.track("ann", "Counted", {"n": number})
    client.flush()
    client.join()
    assert not failed, failed


def snowplow(port: int, count: int) -> None:
    from snowplow_tracker.emitters import Emitter
    from snowplow_tracker.events.structured_event import StructuredEvent
    from snowplow_tracker.tracker import Tracker

    logging.getLogger("snowplow_tracker.emitters").setLevel(logging.ERROR)
    emitter = Emitter("127.0.0.1", protocol="http", port=port, batch_size=20, max_retry_delay_seconds=1)
    tracker = Tracker(namespace="python", emitters=emitter)
    for number in numbers(count):
        tracker.track(StructuredEvent(category="count", action="up", value=float(number)))

    def empty() -> bool:
        emitter.flush()
        return emitter.event_store.size() == 0

    until(empty)


def posthog(port: int, count: int) -> None:
    from posthog import Posthog

    failed: list[Any] = []
    client = Posthog(
        "phc_1",
        host=f"http://127.0.0.1:{port}",
        on_error=lambda error, items: failed.append(error),
        flush_at=20,
        flush_interval=0.05,
        max_retries=1000,
        gzip=True,
    )
    for number in numbers(count):
        client.capture("counted", distinct_id="ann", properties={"n": number})
    client.flush(None)
    client.shutdown()
    assert not failed, failed


def cloudevents(port: int, count: int) -> None:
    """The SDK makes requests and leaves sending them to others: here, sent until somebody answers."""
    import requests
    from cloudevents.core.bindings.http import to_binary_event, to_structured_event
    from cloudevents.core.v1.event import CloudEvent

    with requests.Session() as session:
        for number in numbers(count):
            attributes = {"id": str(number), "source": "/count", "type": "counted", "specversion": "1.0"}
            event = CloudEvent(attributes, {"n": number})
            message = to_binary_event(event) if number % 2 else to_structured_event(event)

            def sent(message: Any = message) -> bool:
                try:
                    url = f"http://127.0.0.1:{port}/v1/cloudevents"
                    return session.post(url, data=message.body, headers=message.headers, timeout=10).ok
                except requests.RequestException:
                    return False

            until(sent)


def otlp(port: int, count: int) -> None:
    from opentelemetry._logs import SeverityNumber
    from opentelemetry.exporter.otlp.proto.http import Compression
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
    from opentelemetry.sdk.resources import Resource

    exporter = OTLPLogExporter(f"http://127.0.0.1:{port}/v1/logs", timeout=PATIENCE_S, compression=Compression.Gzip)
    provider = LoggerProvider(Resource.create({"service.name": "count"}), shutdown_on_exit=False)
    processor = BatchLogRecordProcessor(exporter, schedule_delay_millis=50, max_export_batch_size=20)
    provider.add_log_record_processor(processor)
    logger = provider.get_logger("count")
    for number in numbers(count):
        logger.emit(
            timestamp=time.time_ns(),
            severity_number=SeverityNumber.INFO,
            severity_text="INFO",
            body="counted",
            attributes={"n": number},
        )
    provider.force_flush(int(PATIENCE_S * 1000))
    provider.shutdown()


CLIENTS: dict[str, Callable[[int, int], None]] = {
    client.__name__: client for client in (segment, snowplow, posthog, cloudevents, otlp)
}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody took it")
        pause.wait(0.1)


def main(port: int, count: int, names: list[str]) -> int:
    failures: list[str] = []

    def run(name: str) -> None:
        try:
            CLIENTS[name](port, count)
        except BaseException as error:
            failures.append(f"{name}: {error!r}")

    threads = [threading.Thread(target=run, args=(name,)) for name in names or CLIENTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
