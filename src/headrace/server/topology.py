"""The pipeline as nodes and edges, left to right, with rates and, where something is wrong, with words for it."""

from __future__ import annotations

from typing import Any, Literal

from headrace import __version__
from headrace.collect.definitions import Definition
from headrace.collect.gates import all_statuses
from headrace.coordinate.base import QueryDefinition, ViewDefinition
from headrace.coordinate.describe import counts
from headrace.coordinate.query_status import status_of
from headrace.errors import NotFound
from headrace.log.base import Topic
from headrace.log.missing import of_each
from headrace.process.base import QueryStatus
from headrace.server.models.overview import Edge, EngineModel, Node, Overview, Totals
from headrace.server.services import Services
from headrace.types import display_name
from headrace.views.public import public_topic

LAGGING_RECORDS = 1000
LAGGING_SECONDS = 5
COLLECTOR = "collector:http"

NodeState = Literal["ok", "lagging", "failed", "starting", "idle"]


def overview(services: Services) -> Overview:
    return _Drawing(services).overview()


class _Drawing:
    """One look at everything: the parts of an overview belong to the same moment, as far as that can be."""

    def __init__(self, services: Services) -> None:
        self._services = services
        catalog = services.catalog
        # One version of each is drawn: those being built or kept beside it are on the view's own page.
        beside = [version.source for version in catalog.beside()]
        hidden = {source.query for source in beside}
        self._queries = [query for query in catalog.queries() if not query.transient and query.id not in hidden]
        self._views = {view.name: view for view in catalog.views()}
        self._statuses = {status.id: status for status in services.engine.all()}
        self._lags = {query.id: status_of(query, services.engine, services.log).lag for query in self._queries}
        self._engine = services.engine.state()
        self._letters = services.dead_letters.counts()
        self._open_letters = services.dead_letters.open_counts()
        # The changelog of a table is drawn as the table, not as a topic beside it.
        changelogs = {view.topic for view in self._views.values() if view.query_id is not None}
        changelogs |= {source.topic for source in beside if source.query is not None}
        # So is the public one, which says the same.
        written = [source for source in catalog.sources() if source.query is not None]
        changelogs |= {public for one in written if (public := public_topic(one)) != one.topic}
        topics = services.log.topics()
        self._stats = dict(of_each(topics, lambda topic: (topic.name, services.log.stats(topic.name))))
        shown = [topic for topic in topics if not topic.internal and topic.name not in changelogs]
        self._topics = [topic for topic in shown if topic.name in self._stats]
        self._collecting = all_statuses(services.gates, services.board)
        self._gates = [gate.definition for gate in services.gates.all() if gate.name in self._collecting]

    def overview(self) -> Overview:
        services = self._services
        nodes = [
            self._collector(),
            *map(self._gate, self._gates),
            *map(self._topic, self._topics),
            *map(self._query, self._queries),
        ]
        nodes += [self._view(view) for view in self._views.values()]
        drawn = {node.id for node in nodes}
        edges = [edge for edge in self._edges() if edge.from_ in drawn and edge.to in drawn]
        return Overview(
            project=services.project.name,
            version=__version__,
            uptime_s=round(services.clock.monotonic() - services.started, 1),
            nodes=nodes,
            edges=edges,
            totals=self._totals(),
            engine=EngineModel(self._engine["state"], self._engine["pid"], self._engine["detail"]),
        )

    def _totals(self) -> Totals:
        events = [topic for topic in self._topics if topic.spec.role == "events"]
        return Totals(
            events=sum(sum(ends.end for ends in self._stats[topic.name].partitions) for topic in events),
            rate=round(sum(self._services.rates.topic(topic.name) for topic in events), 1),
            dead_letters=sum(self._letters.values()),
            open_dead_letters=sum(self._open_letters.values()),
            late_rows=sum(status.late_rows for status in self._statuses.values()),
            bytes=sum(stats.bytes for stats in self._stats.values()),
            alerts=sum(status.state == "firing" for status in self._services.alerts.statuses()),
        )

    def _collector(self) -> Node:
        rate = round(sum(map(self._plain_rate, self._topics)), 1)
        elsewhere = sum(status.rejected for status in self._collecting.values())
        rejected = max(0, sum(self._letters.values()) - elsewhere)
        detail = {"path": "/v1/topics/{topic}/events", "rejected": rejected}
        return Node(COLLECTOR, "collector", "HTTP", rate, "ok" if rate else "idle", None, detail)

    def _plain_rate(self, topic: Topic) -> float:
        """What comes without a collector, as far as rates can be taken from each other."""
        if topic.spec.role != "events" or self._services.gates.for_topic(topic.name) is not None:
            return 0.0
        rates = self._services.rates
        others = sum(rates.of("collector", one.name) for one in self._gates if topic.name in one.settings.destinations)
        return round(max(0.0, rates.topic(topic.name) - others), 1)

    def _share(self, definition: Definition, topic: str) -> float:
        """Of a collector's events those for one of its topics, as far as that can be told."""
        rates = self._services.rates
        rate = rates.of("collector", definition.name)
        return rate if len(definition.settings.destinations) == 1 else min(rate, rates.topic(topic))

    def _gate(self, definition: Definition) -> Node:
        status, rate = self._collecting[definition.name], self._services.rates.of("collector", definition.name)
        detail = {"type": definition.kind.name, "topic": definition.settings.topic, "rejected": status.rejected}
        state: NodeState = "ok" if rate else "idle"
        if status.state in ("waiting", "failed"):
            state = "starting" if status.state == "waiting" else "failed"
        message = status.detail or status.last_error if state in ("starting", "failed") else None
        return Node(_gate_id(definition), "collector", definition.name, rate, state, message, detail)

    def _topic(self, topic: Topic) -> Node:
        rate, stats = self._services.rates.topic(topic.name), self._stats[topic.name]
        letters = self._open_letters[topic.name]
        detail: dict[str, Any] = {
            "records": stats.records,
            "counts": counts(self._services.log),
            "bytes": stats.bytes,
            "partitions": topic.spec.partitions,
            "role": topic.spec.role,
            "dead_letters": self._letters[topic.name],
        }
        message = None if not letters else f"{letters:,} dead letter{'s' * (letters != 1)}"
        return Node(f"topic:{topic.name}", "topic", topic.name, rate, "ok" if rate else "idle", message, detail)

    def _query(self, query: QueryDefinition) -> Node:
        status = self._statuses.get(query.id)
        state, message = self._query_state(query, status)
        detail: dict[str, Any] = {"sink": display_name(query.sink), "wanted": query.wanted}
        detail["lag"] = self._lags[query.id]
        if status is not None:
            detail |= {
                "late_rows": status.late_rows,
                "batch_ms": status.batch_ms,
                "restarts": status.restarts,
            }
        rate = status.rows_per_second if status and status.state == "running" else 0.0
        return Node(f"query:{query.id}", "query", query.id, rate, state, message, detail)

    def _query_state(self, query: QueryDefinition, status: QueryStatus | None) -> tuple[NodeState, str | None]:
        if query.wanted == "stopped":
            return "idle", "stopped"
        if status is None:
            return self._without_engine()
        error = status.last_error.message if status.last_error else "no reason given"
        match status.state:
            case "failed":
                return "failed", error
            case "stalled":
                return "failed", error
            case "restarting":
                return "failed", f"starting again after: {error}"
            case "starting":
                return "starting", "starting"
            case "stopped":
                return "starting", "waiting to be started"
        lag = self._lags[query.id]
        if lag > max(LAGGING_RECORDS, LAGGING_SECONDS * status.rows_per_second):
            return "lagging", f"{lag:,} records behind"
        return ("ok" if status.rows_per_second else "idle"), None

    def _without_engine(self) -> tuple[NodeState, str | None]:
        if self._engine["state"] == "gone" and self._engine["updated_ms"] is not None:
            return "failed", "the engine is not running"
        return "starting", "waiting for the engine"

    def _view(self, view: ViewDefinition) -> Node:
        followers, name = self._services.followers, display_name(view.name)
        detail: dict[str, Any] = {"version": view.version, "topic": view.topic, "query_id": view.query_id}
        try:
            error, lag, rate = followers.error(view.name), followers.lag(view.name), followers.rate(view.name)
        except NotFound as missing:
            return Node(f"view:{name}", "view", name, 0.0, "starting", missing.detail or "being opened", detail)
        detail["lag"] = lag
        state: NodeState = "ok" if rate else "idle"
        message = None
        if error is not None:
            state, message = "failed", error
        elif lag > max(LAGGING_RECORDS, LAGGING_SECONDS * rate):
            state, message = "lagging", f"{lag:,} changes not applied yet"
        return Node(f"view:{name}", "view", name, round(rate, 1), state, message, detail)

    def _edges(self) -> list[Edge]:
        rates = self._services.rates
        edges = [
            Edge(COLLECTOR, f"topic:{topic.name}", self._plain_rate(topic))
            for topic in self._topics
            if topic.spec.role == "events" and self._services.gates.for_topic(topic.name) is None
        ]
        edges += [
            Edge(_gate_id(one), f"topic:{topic}", self._share(one, topic))
            for one in self._gates
            for topic in one.settings.destinations
        ]
        for query in self._queries:
            edges += [
                Edge(place, f"query:{query.id}", rate)
                for place, rate in dict(filter(None, map(self._place, query.sources))).items()
            ]
            sink = self._place(query.sink)
            if sink is not None:
                edges.append(Edge(f"query:{query.id}", *sink))
        for view in self._views.values():
            if view.query_id is None:
                edges.append(Edge(self._drawn(view.topic), f"view:{display_name(view.name)}", rates.topic(view.topic)))
        return edges

    def _place(self, source_name: str) -> tuple[str, float] | None:
        """The node a stream or table is drawn as, and how fast records go through it."""
        source = self._services.catalog.source(source_name)
        if source is None:
            return None
        view = self._views.get(source_name)
        rate = self._services.rates.topic(source.topic)
        if view is not None and view.query_id is not None:
            return f"view:{display_name(view.name)}", rate
        return self._drawn(source.topic), rate

    def _drawn(self, topic: str) -> str:
        """The node of a topic: what is declared over a table's changelog reads the table."""
        made = self._services.catalog.maker(topic)
        drawn = made is not None and made.name in self._views
        return f"view:{display_name(made.name)}" if made is not None and drawn else f"topic:{topic}"


def _gate_id(definition: Definition) -> str:
    return f"gate:{definition.name}"
