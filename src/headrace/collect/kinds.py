"""The types of collectors there are. A room adds its own with one line; nothing of it is imported until it is used."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

Where = Literal["http", "listen", "pull"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    """What a file says as `type`."""
    summary: str
    """One line for `headrace collector kinds`, the console and the docs."""
    where: Where
    """`http`: routes of the server and of collector processes. `listen`: a socket of its own, `pull`: it is the client;
    both run in the process `headrace.server.listeners`."""
    settings: str
    """`module:Struct`, which extends `CollectorSettings`."""
    start: str = ""
    """`module:function` for `listen` and `pull`: `async def start(feed)` works until it is cancelled. When it raises,
    the collector has failed, and is started again after a pause."""
    place: str = ""
    """`module:function` for `headrace collector reset`: `def place(settings, to) -> cursor`."""
    sample: str = ""
    """`module:function` for "send a test event": `def sample(definition) -> Sent`, as this protocol makes them. Without
    it an event is made of the topic's columns."""
    example: str = ""
    """What to send, to be copied; `{url}`, `{topic}`, `{name}`, `{key}`, `{sample}` (an event of the columns) and the
    settings' names are filled in; `{host}`, `{port}` and `{transport}` of the first place it listens on."""
    keyed: bool = True
    """Whether it has `keys` of its own. Not so where something else says who may send."""
    page: str = ""
    """Its page in docs/howto, without the ending."""


def load(reference: str) -> Any:
    """What `module:name` names."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


_KINDS = (
    Kind(
        name="http",
        summary="JSON events posted to /v1/topics/TOPIC/events, with rules",
        where="http",
        settings="headrace.collect.definitions:CollectorSettings",
        example="curl -d '{sample}' {url}/v1/topics/{topic}/events",
        keyed=False,
        page="collectors",
    ),
    Kind(
        name="segment",
        summary="Segment's tracking API: /v1/batch, /v1/track, …",
        where="http",
        settings="headrace.collect.trackers.settings:TrackerSettings",
        example='curl -u {key}: -d \'{"userId": "ann", "event": "Signed Up"}\' {url}/v1/track',
        page="segment",
    ),
    Kind(
        name="snowplow",
        summary="Snowplow's trackers: tp2 and the pixel /i",
        where="http",
        settings="headrace.collect.trackers.settings:SnowplowSettings",
        example="curl '{url}/i?e=pv&p=web&aid=shop&page=Home&url=https://shop.example/'",
        page="snowplow",
    ),
    Kind(
        name="posthog",
        summary="PostHog's clients: /batch, /capture",
        where="http",
        settings="headrace.collect.trackers.settings:TrackerSettings",
        example='curl -d \'{"api_key": "{key}", "event": "clicked", "distinct_id": "ann"}\' {url}/capture/',
        page="posthog",
    ),
    Kind(
        name="google",
        summary="Google's Measurement Protocol, version 2: /mp/collect",
        where="http",
        settings="headrace.collect.trackers.settings:TrackerSettings",
        example="""curl -d '{"client_id": "1.2", "events": [{"name": "login"}]}' """
        "'{url}/mp/collect?api_secret={key}'",
        page="measurement-protocol",
    ),
    Kind(
        name="cloudevents",
        summary="CloudEvents over HTTP: binary, structured, batched",
        where="http",
        settings="headrace.collect.cloudevents:CloudEventsSettings",
        example="curl -H 'ce-specversion: 1.0' -H 'ce-id: 1' -H 'ce-source: /shop' -H 'ce-type: order' "
        "-H 'content-type: application/json' -d '{\"total\": 5}' {url}/v1/collect/{name}",
        page="cloudevents",
    ),
    Kind(
        name="otlp",
        summary="OpenTelemetry's logs over HTTP: /v1/logs",
        where="http",
        settings="headrace.collect.definitions:CollectorSettings",
        example="OTEL_EXPORTER_OTLP_LOGS_ENDPOINT={url}/v1/logs",
        page="opentelemetry",
    ),
    Kind(
        name="prometheus",
        summary="Prometheus' remote write: /api/v1/write",
        where="http",
        settings="headrace.collect.definitions:CollectorSettings",
        example="remote_write: [{url: {url}/api/v1/write}]",
        page="prometheus",
    ),
    Kind(
        name="webhook",
        summary="Webhooks with a signature: GitHub, Stripe, Standard Webhooks, others",
        where="http",
        settings="headrace.collect.webhooks:WebhookSettings",
        example="{url}/v1/collect/{name}",
        keyed=False,
        page="webhooks",
    ),
    Kind(
        name="debezium",
        summary="Changes of a database in Debezium's envelopes, as a table",
        where="http",
        settings="headrace.collect.debezium:DebeziumSettings",
        example="debezium.sink.type=http\ndebezium.sink.http.url={url}/v1/collect/{name}",
        page="debezium",
    ),
    Kind(
        name="weblog",
        summary="Lines of web servers' logs: common, combined, W3C extended",
        where="http",
        settings="headrace.collect.weblogs:WebLogSettings",
        example="curl --data-binary @access.log {url}/v1/collect/{name}",
        page="web-logs",
    ),
    Kind(
        name="kinesis",
        summary="rules and rates for one stream that AWS's clients write to; streams need no file",
        where="http",
        settings="headrace.collect.kinesis.settings:KinesisStreamSettings",
        example="aws kinesis put-record --endpoint-url {url} --stream-name {topic} --partition-key k --data e30=",
        keyed=False,
        page="kinesis",
    ),
    Kind(
        name="syslog",
        summary="syslog messages (RFC 5424 and 3164) over UDP, TCP and TLS",
        where="listen",
        settings="headrace.collect.syslog.listen:SyslogSettings",
        start="headrace.collect.syslog.listen:start",
        sample="headrace.collect.syslog.listen:sample",
        example="logger --server {host} --port {port} --{transport} hello",
        keyed=False,
        page="syslog",
    ),
    Kind(
        name="udp",
        summary="one-way events: JSON, text or bytes in datagrams",
        where="listen",
        settings="headrace.collect.udp:UdpSettings",
        start="headrace.collect.udp:start",
        example="echo -n '{sample}' > /dev/udp/{host}/{port}",
        keyed=False,
        page="udp",
    ),
    Kind(
        name="statsd",
        summary="statsd metrics, with DogStatsD's and Influx's tags, as events",
        where="listen",
        settings="headrace.collect.statsd:StatsdSettings",
        start="headrace.collect.statsd:start",
        sample="headrace.collect.statsd:sample",
        example="echo -n 'page.views:1|c|#route:home' > /dev/udp/{host}/{port}",
        keyed=False,
        page="statsd",
    ),
    Kind(
        name="agent",
        summary="a Flume agent: sources, channels and sinks, from a .properties file or from tables",
        where="pull",
        settings="headrace.collect.agents.collector:AgentSettings",
        start="headrace.collect.agents.collector:start",
        example="headrace agent check {file}",
        keyed=False,
        page="flume",
    ),
    Kind(
        name="mqtt",
        summary="messages of an MQTT broker, acknowledged when the log has them",
        where="pull",
        settings="headrace.collect.mqtt.subscribe:MqttSettings",
        start="headrace.collect.mqtt.subscribe:start",
        example="mosquitto_pub -q 1 -t sensors/d1/temperature -m '{sample}'",
        keyed=False,
        page="mqtt",
    ),
    Kind(
        name="file",
        summary="lines of growing files, over rotations",
        where="pull",
        settings="headrace.collect.pull.files:FileSettings",
        start="headrace.collect.pull.files:start",
        place="headrace.collect.pull.files:place",
        example='path = "logs/*.log"',
        keyed=False,
        page="pull",
    ),
    Kind(
        name="sse",
        summary="a stream of server-sent events, followed",
        where="pull",
        settings="headrace.collect.pull.sse:SseSettings",
        start="headrace.collect.pull.sse:start",
        place="headrace.collect.pull.sse:place",
        example='url = "https://source.example/events"',
        keyed=False,
        page="pull",
    ),
    Kind(
        name="websocket",
        summary="messages of a WebSocket, followed",
        where="pull",
        settings="headrace.collect.pull.websocket:WebSocketSettings",
        start="headrace.collect.pull.websocket:start",
        place="headrace.collect.pull.websocket:place",
        example='url = "wss://source.example/feed"',
        keyed=False,
        page="pull",
    ),
    Kind(
        name="poll",
        summary="an HTTP address asked again and again, by a cursor",
        where="pull",
        settings="headrace.collect.pull.poll:PollSettings",
        start="headrace.collect.pull.poll:start",
        place="headrace.collect.pull.poll:place",
        example='url = "https://source.example/items"',
        keyed=False,
        page="pull",
    ),
    Kind(
        name="headrace",
        summary="a topic of another Headrace, followed by offset",
        where="pull",
        settings="headrace.collect.pull.headrace:HeadraceSettings",
        start="headrace.collect.pull.headrace:start",
        place="headrace.collect.pull.headrace:place",
        example='url = "http://other.example:8080"',
        keyed=False,
        page="pull",
    ),
    Kind(
        name="kafka",
        summary="a topic of a Kafka cluster, followed by offset",
        where="pull",
        settings="headrace.collect.pull.kafka:KafkaSettings",
        start="headrace.collect.pull.kafka:start",
        place="headrace.collect.pull.kafka:place",
        example='bootstrap = "broker-1:9092"',
        keyed=False,
        page="pull",
    ),
)

KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}
