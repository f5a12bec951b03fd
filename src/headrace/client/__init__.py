"""A client of Headrace's HTTP API, blocking and asynchronous. Needs neither Spark nor the server's packages.

`operations` says what is asked and what the answer means, without doing it; `blocking` and `asynchronous` do it, with
httpx. So both can the same, and neither is written twice."""

from headrace.client.asynchronous import AsyncClient
from headrace.client.blocking import Client
from headrace.client.values import (
    Answer,
    Change,
    Group,
    Message,
    NewRecord,
    Offset,
    Page,
    Produced,
    Queue,
    Record,
    Rejected,
    Reply,
    Settled,
    Topic,
)

__all__ = [
    "Answer",
    "AsyncClient",
    "Change",
    "Client",
    "Group",
    "Message",
    "NewRecord",
    "Offset",
    "Page",
    "Produced",
    "Queue",
    "Record",
    "Rejected",
    "Reply",
    "Settled",
    "Topic",
]
