"""What every Kafka client of ours is configured with, and how errors of the brokers come to be known."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Mapping
from typing import Any, TypeAlias

from confluent_kafka import KafkaError

from headrace.config import KafkaSettings
from headrace.errors import ConfigError

Conf: TypeAlias = dict[str, Any]

_MOST_KNOWN = 10_000

logger = logging.getLogger("headrace.log.kafka")


class Connection:
    """The settings all clients share, and the last trouble any of them had: a request that merely timed out says
    nothing about why."""

    def __init__(self, settings: KafkaSettings, environment: Mapping[str, str] = os.environ) -> None:
        if not settings.bootstrap:
            raise ConfigError(
                "`[log.kafka] bootstrap` is missing", hint='name some brokers:  bootstrap = "broker1:9092,broker2:9092"'
            )
        self.settings = settings
        self._conf = _security(settings, environment)
        self._lock = threading.Lock()
        self._trouble: KafkaError | None = None
        self._clients: list[Any] = []

    def conf(self, **more: Any) -> Conf:
        """A client's configuration. Names are written with underscores in place of dots."""
        return (
            self._conf
            | {name.replace("_", "."): value for name, value in more.items()}
            | {"logger": logger, "error_cb": self._remember}
            | dict(self.settings.conf)
        )

    def _remember(self, error: KafkaError) -> None:
        # "All brokers down" hides the reason that came before it.
        with self._lock:
            if self._trouble is None or error.code() != KafkaError._ALL_BROKERS_DOWN:
                self._trouble = error

    def listen(self, client: Any) -> None:
        """Clients tell their troubles only when they are polled."""
        self._clients.append(client)

    def trouble(self) -> KafkaError | None:
        for client in self._clients:
            client.poll(0)
        with self._lock:
            return self._trouble


class Introductions:
    """Tells a client about topics before it uses them. librdkafka finds out by itself within a second, which is long
    for somebody who waits."""

    def __init__(self, client: Any, seconds: float) -> None:
        self._client = client
        self._seconds = seconds
        self._known: set[str] = set()

    def introduce(self, topic: str) -> None:
        if topic not in self._known:
            self._client.list_topics(topic, timeout=self._seconds)
            if len(self._known) > _MOST_KNOWN:
                self._known.clear()
            self._known.add(topic)


def _security(settings: KafkaSettings, environment: Mapping[str, str]) -> Conf:
    conf: Conf = {
        "bootstrap.servers": settings.bootstrap,
        "client.id": "headrace",
        # Lost connections and the like: clients try again, and what does not get better becomes an error of ours.
        "log_level": 2,
        "socket.keepalive.enable": True,
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 2000,
        "topic.metadata.refresh.interval.ms": 30_000,
        "socket.connection.setup.timeout.ms": 5000,
        # A broker that is up but does not answer: its partitions have another leader long before the usual minute.
        "socket.timeout.ms": 10_000,
    }
    if settings.tls or settings.sasl:
        transport = "SSL" if settings.tls else "PLAINTEXT"
        conf["security.protocol"] = f"SASL_{transport}" if settings.sasl else transport
    if settings.tls:
        files = {"ca": settings.tls_ca, "certificate": settings.tls_cert, "key": settings.tls_key}
        for name, file in files.items():
            if file and not os.path.isfile(file):
                raise ConfigError(f"`[log.kafka]`: there is no file `{file}`")
            if file:
                conf[f"ssl.{name}.location"] = file
    if settings.sasl:
        password = environment.get(settings.password_env)
        if not settings.user or password is None:
            missing = "`user` is missing" if not settings.user else f"`{settings.password_env}` is not set"
            raise ConfigError(f"`[log.kafka] sasl`: {missing}", hint="the password comes from the environment")
        conf |= {"sasl.mechanisms": settings.sasl, "sasl.username": settings.user, "sasl.password": password}
    return conf
