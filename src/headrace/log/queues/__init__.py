"""Queues over topics: each message to one receiver, acknowledged one by one. Works on every log."""

from headrace.log.queues.base import Message, QueueDefinition, QueueStats, Settled, Spent
from headrace.log.queues.queue import Queue
from headrace.log.queues.queues import QUEUES_TOPIC, Queues
from headrace.log.queues.requests import CORRELATION, REPLY_TO, Requests

__all__ = [
    "CORRELATION",
    "QUEUES_TOPIC",
    "REPLY_TO",
    "Message",
    "Queue",
    "QueueDefinition",
    "QueueStats",
    "Queues",
    "Requests",
    "Settled",
    "Spent",
]
