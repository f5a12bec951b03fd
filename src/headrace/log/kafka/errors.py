"""Kafka's errors in Headrace's words: what happened, and what to do."""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from headrace.errors import (
    Conflict,
    Fenced,
    HeadraceError,
    LogError,
    NotFound,
    OffsetOutOfRange,
    Overloaded,
    OwnerLost,
    Refused,
    TooLarge,
    Unauthenticated,
    UsageError,
)
from headrace.log.kafka.client import Connection

_SILENT = {
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TRANSPORT,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
}
_LOGIN = {KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED}
_FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_UNKNOWN = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}
_TOO_FEW = {KafkaError.NOT_ENOUGH_REPLICAS, KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND}
_WRONG = {
    KafkaError.INVALID_CONFIG,
    KafkaError.POLICY_VIOLATION,
    KafkaError.INVALID_REPLICATION_FACTOR,
    KafkaError.INVALID_PARTITIONS,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.TOPIC_EXCEPTION,
    KafkaError.INVALID_RECORD,
}


_LOST_MEMBER = {
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.FENCED_INSTANCE_ID,
    KafkaError.STALE_MEMBER_EPOCH,
    KafkaError.FENCED_MEMBER_EPOCH,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError._ASSIGNMENT_LOST,
    KafkaError._MAX_POLL_EXCEEDED,
}


def is_lost_member(error: KafkaError) -> bool:
    """Whether the group has moved on without this member."""
    return error.code() in _LOST_MEMBER


def error_of(failure: KafkaError | BaseException) -> KafkaError | None:
    if isinstance(failure, KafkaException):
        [error] = failure.args[:1]
        return error if isinstance(error, KafkaError) else None
    return failure if isinstance(failure, KafkaError) else None


def translate(
    failure: KafkaError | BaseException, doing: str, connection: Connection, topic: str | None = None
) -> HeadraceError:
    """The error to raise. `doing` completes "could not …"."""
    if isinstance(failure, HeadraceError):
        return failure
    error = error_of(failure)
    if error is None:
        return LogError(f"could not {doing}", detail=str(failure))
    code = error.code()
    if code in _SILENT:
        return _silence(error, doing, connection)
    return _known(error, code, doing, topic) or LogError(f"could not {doing}", detail=error.str(), kafka=error.name())


def _silence(error: KafkaError, doing: str, connection: Connection) -> HeadraceError:
    """Nobody answered; what the clients last complained about usually says why."""
    trouble = connection.trouble()
    if trouble is not None and trouble.code() in _LOGIN | {KafkaError._SSL}:
        return _known(trouble, trouble.code(), doing, None) or LogError(trouble.str())
    return OwnerLost(
        f"could not {doing}: Kafka does not answer at `{connection.settings.bootstrap}`",
        detail=(trouble or error).str(),
        hint="are the brokers running, and is `[log.kafka] bootstrap` right? A write may or may not have been stored",
    )


def _known(error: KafkaError, code: int, doing: str, topic: str | None) -> HeadraceError | None:
    said = error.str()
    if code in _LOGIN:
        return Unauthenticated(
            "Kafka refused the login", detail=said, hint="check `[log.kafka] user`, `sasl` and the password's variable"
        )
    if code == KafkaError._SSL:
        return Refused(
            "no TLS connection to Kafka", detail=said, hint="check `[log.kafka] tls_ca`, `tls_cert` and `tls_key`"
        )
    if code in _FORBIDDEN:
        return Refused(f"could not {doing}: Kafka does not allow it", detail=said, hint="ask for the rights (ACLs)")
    if code in _UNKNOWN:
        return NotFound(
            f"topic `{topic}` does not exist" if topic else f"could not {doing}: no such topic",
            hint="`headrace topic list` lists what there is",
        )
    if code == KafkaError.MSG_SIZE_TOO_LARGE:
        return TooLarge(
            f"could not {doing}: a record is larger than Kafka takes", detail=said, hint="raise `max.message.bytes`"
        )
    if code in FENCED:
        return Fenced(f"could not {doing}: another producer of that name took over", detail=said)
    if code in _TOO_FEW:
        return LogError(
            f"could not {doing}: too few brokers have a copy",
            detail=said,
            hint="brokers are down; `min.insync.replicas` of them must be up before anything is acknowledged",
        )
    if code == KafkaError._QUEUE_FULL:
        return Overloaded("too much is waiting to be sent to Kafka")
    if code in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
        return OffsetOutOfRange(f"could not {doing}: the offset is no longer there", detail=said)
    if code == KafkaError.NON_EMPTY_GROUP:
        return Conflict(f"could not {doing}: the group has members", hint="stop them first")
    if code in _WRONG:
        return UsageError(f"could not {doing}", detail=said)
    return None
