"""What the owner does for producers and groups of other processes. JSON forms are those of docs/log-format.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.log.base import TopicPartition
from headrace.log.local.producers import Stamp
from headrace.log.local.services import Answer, Beat, SentOffsets

if TYPE_CHECKING:
    from headrace.log.local.log import LocalLog


def places_to_json(places: Any) -> list[list[Any]]:
    return [[at.topic, at.partition] for at in places]


def places_from_json(body: Any) -> list[TopicPartition]:
    return [TopicPartition(str(topic), int(partition)) for topic, partition in body]


def offsets_to_json(offsets: Mapping[TopicPartition, int]) -> list[list[Any]]:
    return [[at.topic, at.partition, offset] for at, offset in offsets.items()]


def offsets_from_json(body: Any) -> dict[TopicPartition, int]:
    return {TopicPartition(str(topic), int(partition)): int(offset) for topic, partition, offset in body}


def sent_to_json(sent: SentOffsets) -> dict[str, Any]:
    return {"group": sent.group, "member": sent.member, "offsets": offsets_to_json(sent.offsets)}


def sent_from_json(body: dict[str, Any]) -> SentOffsets:
    return SentOffsets(body["group"], body.get("member"), offsets_from_json(body["offsets"]))


def beat_to_json(beat: Beat) -> dict[str, Any]:
    return {
        "group": beat.group,
        "member": beat.member,
        "client": beat.client,
        "topics": sorted(beat.topics),
        "timeout_s": beat.timeout_s,
        "held": places_to_json(beat.held),
    }


def beat_from_json(body: dict[str, Any]) -> Beat:
    return Beat(
        body["group"],
        body.get("member"),
        str(body.get("client") or ""),
        frozenset(str(name) for name in body["topics"]),
        float(body["timeout_s"]),
        tuple(places_from_json(body.get("held") or [])),
    )


def answer_to_json(answer: Answer) -> dict[str, Any]:
    return {
        "member": answer.member,
        "generation": answer.generation,
        "partitions": places_to_json(answer.partitions),
        "committed": offsets_to_json(answer.committed),
        "joined": answer.joined,
        "resumed": answer.resumed,
        "settled": answer.settled,
    }


def answer_from_json(body: dict[str, Any]) -> Answer:
    return Answer(
        body["member"],
        body["generation"],
        tuple(places_from_json(body["partitions"])),
        offsets_from_json(body["committed"]),
        body["joined"],
        body["resumed"],
        body["settled"],
    )


def stamp_from_json(body: Any) -> Stamp:
    producer, epoch, sequence = body
    return Stamp(int(producer), int(epoch), int(sequence))


class GroupOperations:
    """Operations that need nothing but their request."""

    _log: LocalLog

    def op_open_producer(self, request: dict[str, Any], body: Any) -> dict[str, Any]:
        number, epoch = self._log.desk.open(request.get("name"))
        return {"id": number, "epoch": epoch}

    def op_abort_sends(self, request: dict[str, Any], body: Any) -> None:
        self._log.desk.abort(stamp_from_json(request["producer"]))

    def op_group_beat(self, request: dict[str, Any], body: Any) -> dict[str, Any]:
        return answer_to_json(self._log.coordinator.beat(beat_from_json(request)))

    def op_group_alive(self, request: dict[str, Any], body: Any) -> None:
        self._log.coordinator.keep_alive(request["group"], request["member"])

    def op_group_leave(self, request: dict[str, Any], body: Any) -> None:
        self._log.coordinator.leave(request["group"], request["member"])

    def op_group_commit(self, request: dict[str, Any], body: Any) -> None:
        self._log.coordinator.commit(sent_from_json(request))

    def op_groups(self, request: dict[str, Any], body: Any) -> dict[str, Any]:
        return {"groups": self._log.groups()}

    def op_group(self, request: dict[str, Any], body: Any) -> dict[str, Any]:
        return {"group": msgspec.to_builtins(self._log.group(request["name"]))}

    def op_reset_group(self, request: dict[str, Any], body: Any) -> None:
        self._log.reset_group(request["name"], offsets_from_json(request["offsets"]), bool(request.get("force")))

    def op_delete_group(self, request: dict[str, Any], body: Any) -> None:
        self._log.delete_group(request["name"])

    def op_delete_records(self, request: dict[str, Any], body: Any) -> dict[str, Any]:
        return {"start": self._log.delete_records(request["topic"], request["partition"], request["before"])}
