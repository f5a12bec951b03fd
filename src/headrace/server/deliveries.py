"""Firehose's delivery streams: how they are."""

from __future__ import annotations

from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.coordinate.firehose.status import DeliveryStatus
from headrace.server.endpoint import Endpoint
from headrace.server.errors import json_response
from headrace.server.models.base import Model
from headrace.server.services import Services


class DeliveryModel(Model, frozen=True):
    status: DeliveryStatus
    lag: int
    """Records that are not delivered yet; for files, those that wait for theirs too."""
    rate: float
    """Records per second, over the last five seconds: files come all at once."""


class DeliveriesModel(Model, frozen=True):
    deliveries: list[DeliveryModel]


async def list_deliveries(request: Request, services: Services) -> Response:
    def describe() -> DeliveriesModel:
        return DeliveriesModel(
            [
                DeliveryModel(
                    _shown(one, services.project.folder),
                    services.deliveries.lag(one.name),
                    services.rates.of("delivery", one.name),
                )
                for one in services.deliveries.statuses()
            ]
        )

    return json_response(await services.run(describe))


def _shown(status: DeliveryStatus, folder: Path) -> DeliveryStatus:
    """Name the last file from the project's folder on: where that is on the machine is nobody else's business."""
    if status.last_file is None:
        return status
    return msgspec.structs.replace(status, last_file=status.last_file.removeprefix(f"{folder}/"))


ENDPOINTS = (
    Endpoint(
        method="GET",
        path="/v1/deliveries",
        handler=list_deliveries,
        summary="Firehose's delivery streams: how they are, what waits for its file, the last one",
        answers={200: DeliveriesModel},
    ),
)
