"""A client of the classic protocol that follows it as Java's consumer does, for groups in which both are spoken."""

from typing import Any, Final

from common.protocol.codec import decode_with_version, encode_with_version
from common.protocol.errors import ErrorCode
from common.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from common.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription, TopicPartition
from common.protocol.messages.join_group import JoinGroupResponse
from tests.unit.broker.coordinator.core.consumer_group.consumer_world import ConsumerWorld

COOPERATIVE: Final = "cooperative-sticky"
EAGER: Final = "range"
TOPIC: Final = "t"
LOST = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION)


def metadata(owned: set[int], generation: int = -1, version: int = 3) -> bytes:
    parts = [TopicPartition(topic=TOPIC, partitions=sorted(owned))] if owned else []
    subscription = ConsumerProtocolSubscription(topics=[TOPIC], owned_partitions=parts, generation_id=generation)
    return encode_with_version(subscription, version)


def assigned(indexes: set[int]) -> bytes:
    parts = [TopicPartition(topic=TOPIC, partitions=sorted(indexes))] if indexes else []
    return encode_with_version(ConsumerProtocolAssignment(assigned_partitions=parts), 3)


def indexes_of(assignment: bytes) -> set[int]:
    if not assignment:
        return set()
    decoded = decode_with_version(ConsumerProtocolAssignment, assignment)
    return {index for each in decoded.assigned_partitions for index in each.partitions}


class ClassicConsumer:
    """With `EAGER` it gives up everything before it joins, with `COOPERATIVE` only what it is not given again."""

    def __init__(self, world: ConsumerWorld, protocol: str, partitions: int = 4, instance: str | None = None) -> None:
        self.world = world
        self.protocol = protocol
        self.partitions = partitions
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.is_member = False
        self._join: int | None = None
        self._sync: int | None = None

    def act(self) -> None:
        """Sends the next request, or looks whether the last one is answered."""
        if self._join is not None:
            self._look(self._join, self._joined)
        elif self._sync is not None:
            self._look(self._sync, self._synced)
        elif self.is_member:
            self._heartbeat()
        else:
            self._send_join()

    def leave(self) -> None:
        """Leaves between two requests."""
        assert self._join is None and self._sync is None
        self.world.leave(self.member_id)
        self.member_id, self.generation, self.owned, self.is_member = "", -1, set(), False

    @property
    def is_waiting(self) -> bool:
        return self._join is not None or self._sync is not None

    def _send_join(self) -> None:
        if self.protocol == EAGER:
            self.owned = set()
        protocols = {self.protocol: metadata(self.owned, self.generation)}
        self._join = self.world.join(self.member_id, protocols=protocols, instance=self.instance)
        self.act()

    def _look(self, waiter: int, answered: Any) -> None:
        answer = self.world.answers.get(waiter)
        if answer is not None:
            self._join = self._sync = None
            answered(answer)

    def _failed(self, error: ErrorCode) -> bool:
        if error is ErrorCode.NONE:
            return False
        if error in LOST:
            self.owned, self.generation = set(), -1
            self.member_id = "" if error is ErrorCode.UNKNOWN_MEMBER_ID else self.member_id
        else:
            assert error in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), error
        self.is_member = False
        return True

    def _joined(self, answer: JoinGroupResponse) -> None:
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return
        if self._failed(ErrorCode(answer.error_code)):
            return
        self.member_id, self.generation = answer.member_id, answer.generation_id
        plan = self._plan(answer) if answer.leader == self.member_id else {}
        self._sync = self.world.sync(
            self.member_id,
            plan,
            generation=self.generation,
            protocol_type="consumer",
            protocol_name=answer.protocol_name,
            instance=self.instance,
        )
        self.act()

    def _plan(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """Assigns in turn. A partition that another member owns is given to nobody in this generation."""
        members = sorted(each.member_id for each in answer.members)
        owners = {}
        for each in answer.members:
            subscription = decode_with_version(ConsumerProtocolSubscription, each.metadata)
            owners.update({i: each.member_id for part in subscription.owned_partitions for i in part.partitions})
        plan: dict[str, set[int]] = {member: set() for member in members}
        for index in range(self.partitions):
            member = members[index % len(members)]
            if owners.get(index, member) == member:
                plan[member].add(index)
        return {member: assigned(indexes) for member, indexes in plan.items()}

    def _synced(self, answer: Any) -> None:
        if self._failed(ErrorCode(answer.error_code)):
            return
        given = indexes_of(answer.assignment)
        must_rejoin = bool(self.owned - given)
        self.owned, self.is_member = given, not must_rejoin

    def _heartbeat(self) -> None:
        answer = self.world.heartbeat(self.member_id, generation=self.generation, instance=self.instance)
        self._failed(ErrorCode[answer])
