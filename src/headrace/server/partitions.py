"""Splitting and merging a topic's partitions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.describe import refuse_internal
from headrace.errors import UsageError
from headrace.server.endpoint import Endpoint
from headrace.server.errors import json_response
from headrace.server.models.topics import Reshape, Reshaped
from headrace.server.parameters import body_of
from headrace.server.services import Services


async def reshape(request: Request, services: Services) -> Response:
    wanted = await body_of(request, services, Reshape)
    if (wanted.split is None) == (wanted.merge is None):
        raise UsageError('say one of {"split": N} and {"merge": [N, M]}')

    def change() -> Reshaped:
        topic = services.log.topic(request.path_params["topic"])
        refuse_internal(topic)
        if wanted.merge is not None:
            return Reshaped(topic.name, [*wanted.merge], [services.log.merge_partitions(topic.name, *wanted.merge)])
        assert wanted.split is not None
        return Reshaped(topic.name, [wanted.split], [*services.log.split_partition(topic.name, wanted.split)])

    return json_response(await services.run(change))


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/v1/topics/{topic}/partitions",
        handler=reshape,
        summary="Split a partition into two, each for half of its keys, or merge two neighbours into one",
        role="admin",
        body=Reshape,
        answers={200: Reshaped},
    ),
)
