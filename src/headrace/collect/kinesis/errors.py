"""Errors as AWS names them: its clients decide by the name whether to try again."""

from __future__ import annotations

import logging
from typing import ClassVar

from headrace.errors import (
    Conflict,
    DeadlineExceeded,
    DiskFull,
    HeadraceError,
    NotFound,
    NotRunning,
    Overloaded,
    Refused,
    TooLarge,
    Unauthenticated,
    UsageError,
)

logger = logging.getLogger("headrace.server")

NOT_FOUND, IN_USE, INVALID = "ResourceNotFoundException", "ResourceInUseException", "InvalidArgumentException"
THROTTLED, LIMIT, EXPIRED = (
    "ProvisionedThroughputExceededException",
    "LimitExceededException",
    "ExpiredIteratorException",
)
VALIDATION, MALFORMED, UNKNOWN = "ValidationException", "SerializationException", "UnknownOperationException"
DENIED, UNRECOGNIZED, INTERNAL, UNAVAILABLE = (
    "AccessDeniedException",
    "UnrecognizedClientException",
    "InternalFailure",
    "ServiceUnavailable",
)


class ApiError(HeadraceError):
    """An answer with a name of AWS's."""

    code: ClassVar[str] = "aws"

    def __init__(self, name: str, message: str, http_status: int = 400) -> None:
        super().__init__(message)
        self.name = name
        self.http_status = http_status


_NAMES: tuple[tuple[type[HeadraceError], str, int], ...] = (
    (NotFound, NOT_FOUND, 400),
    (Conflict, IN_USE, 400),
    (Overloaded, THROTTLED, 400),
    (Unauthenticated, UNRECOGNIZED, 400),
    (Refused, DENIED, 400),
    (TooLarge, INVALID, 400),
    (UsageError, INVALID, 400),
    (DeadlineExceeded, "RequestTimeoutException", 408),
    (NotRunning, UNAVAILABLE, 503),
    (DiskFull, UNAVAILABLE, 503),
)


def api_error(error: Exception) -> ApiError:
    """What a client is told. What nobody expected says nothing about our insides; the server's log does."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, HeadraceError):
        text = ". ".join(part for part in (error.message, error.detail, error.hint) if part)
        for kind, name, status in _NAMES:
            if isinstance(error, kind):
                return ApiError(name, text, status)
        return ApiError(INTERNAL, text, 500)
    logger.error("unexpected error", exc_info=error)
    return ApiError(INTERNAL, "something went wrong in the server: see headrace logs", 500)
