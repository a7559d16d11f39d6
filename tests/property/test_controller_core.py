"""The controller's core under any sequence of requests: invariants after every record, and replay gives the same state.

Hypothesis generates valid and invalid requests in any order. Brokers register, return, lose directories, assign replicas,
change ISRs, stop their heartbeats and unregister. Topics are created, extended, reassigned and deleted. `ControllerContext`
checks I4, I6, I7, I9, I10 and I12 after every record. This module checks what must hold between operations, and that
replaying the log gives the same state.
"""

from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from common.ids import NO_LEADER, BrokerId, Offset, TopicId, TopicIdPartition
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED
from common.metadata.state import MetadataState
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.elect_leaders import ElectionType
from controller.core.eligibility import Eligibility
from tests.property.profiles import examples
from tests.unit.controller.core.context import ControllerContext, directory

BROKERS = st.integers(1, 4)
TOPICS = st.sampled_from(["t0", "t0", "t1"])
# True one time in five, for events that would leave little to test if they happened more often, such as shutdowns.
SELDOM = st.sampled_from([False, False, False, False, True])
# Directory n of broker b is named "b-n". No broker registers the directory "b-foreign", which `assign` also uses.
SLOTS = st.sampled_from([(), (0,), (1,), (0, 1), (0, 1, 2), (2,)])


class ControllerMachine(RuleBasedStateMachine):
    """Four brokers with up to three directories each, two topics of up to three partitions."""

    def __init__(self) -> None:
        super().__init__()
        self.controller = ControllerContext()
        self.incarnations = dict.fromkeys(range(1, 5), 0)

    @initialize(unclean=st.booleans())
    def begin(self, unclean: bool) -> None:
        self.controller = ControllerContext(unclean=unclean)
        for broker_id in (1, 2, 3):
            self.controller.start(broker_id, [f"{broker_id}-0", f"{broker_id}-1"])
        self.controller.topic("t0", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])

    # --- brokers ------------------------------------------------------------------------------------------------

    @rule(broker_id=BROKERS, slots=SLOTS, is_new=st.booleans(), is_clean=st.booleans())
    def register(self, broker_id: int, slots: tuple[int, ...], is_new: bool, is_clean: bool) -> None:
        incarnation = self.incarnations[broker_id] + is_new
        before = self.controller.state.brokers.get(BrokerId(broker_id))
        try:
            response = self.controller.register(
                broker_id,
                [f"{broker_id}-{slot}" for slot in slots],
                incarnation_name=str(incarnation or "first"),
                previous_epoch=before.epoch if is_clean and before is not None else -1,
            )
        except ApiError:
            assert self.controller.state.brokers.get(BrokerId(broker_id)) == before
            return
        self.incarnations[broker_id] = incarnation
        after = self.controller.state.brokers[BrokerId(broker_id)]
        assert response.broker_epoch == after.epoch
        if before is not None and before.incarnation_id == after.incarnation_id:
            assert (after.epoch, after.fenced) == (before.epoch, before.fenced)
            assert not set(after.directories) & set(before.lost_directories)
        else:
            assert after.fenced
            assert before is None or after.epoch > before.epoch

    @rule(broker_id=BROKERS, slots=SLOTS, fence=SELDOM, shut_down=SELDOM, is_behind=SELDOM)
    def heartbeat(self, broker_id: int, slots: tuple[int, ...], fence: bool, shut_down: bool, is_behind: bool) -> None:
        offline = [f"{broker_id}-{slot}" for slot in slots]
        if BrokerId(broker_id) not in self.controller.state.brokers:
            return
        response = self.controller.heartbeat(
            broker_id,
            offline=offline,
            want_fence=fence,
            want_shut_down=shut_down,
            metadata_offset=0 if is_behind else len(self.controller.log),
        )
        after = self.controller.state.brokers[BrokerId(broker_id)]
        assert response.is_fenced == after.fenced
        # A replica in a directory that the broker has just reported offline must neither lead nor share an ISR with other
        # replicas.
        for topic in self.controller.state.topics.values():
            for partition in topic.partitions.values():
                if BrokerId(broker_id) not in partition.replicas or response.error_code != ErrorCode.NONE:
                    continue
                if partition.directory(BrokerId(broker_id)) in map(directory, offline):
                    assert partition.leader != broker_id
                    assert broker_id not in partition.isr or len(partition.isr) == 1
        # Repeating the request changes nothing, unless a shutdown is in progress.
        if not shut_down and not after.in_controlled_shutdown and response.error_code == ErrorCode.NONE:
            self.controller.heartbeat(broker_id, offline=offline, want_fence=fence, metadata_offset=len(self.controller.log))
            if not is_behind:
                assert self.controller.records == []

    @rule(seconds=st.sampled_from([1, 5, 20]))
    def silence(self, seconds: int) -> None:
        self.controller.advance(seconds)
        while (broker_id := self.controller.fence_stale()) is not None:
            assert self.controller.state.brokers[broker_id].fenced

    @rule(broker_id=BROKERS)
    def unregister(self, broker_id: int) -> None:
        if BrokerId(broker_id) in self.controller.state.brokers:
            self.controller.unregister(broker_id)
            assert BrokerId(broker_id) not in self.controller.state.brokers

    # --- partitions ---------------------------------------------------------------------------------------------

    @rule(
        broker_id=BROKERS,
        topic=TOPICS,
        index=st.integers(0, 3),
        where=st.sampled_from(["0", "0", "1", "1", "2", "foreign", "lost", "unassigned", "migrating"]),
    )
    def assign(self, broker_id: int, topic: str, index: int, where: str) -> None:
        known = self.controller.state.topic_named(topic)
        if known is None or BrokerId(broker_id) not in self.controller.state.brokers:
            return
        reserved = {"lost": LOST, "unassigned": UNASSIGNED, "migrating": MIGRATING}
        directory_id = reserved.get(where, directory(f"{broker_id}-{where}"))
        response = self.controller.assign(broker_id, {}, ids={directory_id: [TopicIdPartition(known.id, index)]})
        code = response.directories[0].topics[0].partitions[0].error_code
        if code == ErrorCode.NONE:
            partition = self.controller.partition(known.id, index)
            # An unclean election of the replica would replace LOST with UNASSIGNED, but the request that reports a replica
            # as LOST never elects that replica.
            assert partition.directory(BrokerId(broker_id)) == directory_id

    @rule(topic=TOPICS, index=st.integers(0, 2), isr=st.lists(BROKERS, unique=True, max_size=4), is_stale=SELDOM)
    def alter(self, topic: str, index: int, isr: Sequence[int], is_stale: bool) -> None:
        known = self.controller.state.topic_named(topic)
        partition = None if known is None else known.partitions.get(index)
        if known is None or partition is None or partition.leader == NO_LEADER:
            return
        # An ISR without the leader would always be refused, so propose all replicas instead.
        isr = isr if partition.leader in isr else partition.replicas
        result = self.controller.alter(known.id, index, isr, partition_epoch=partition.partition_epoch - is_stale)
        after = self.controller.partition(known.id, index)
        if result.error_code == ErrorCode.NEW_LEADER_ELECTED:
            # An ISR change ends with this error only if it completes a reassignment that removes the leader.
            assert partition.is_reassigning
            assert partition.leader not in after.replicas
        elif result.error_code == ErrorCode.NONE:
            assert result.isr == list(after.isr) == [member for member in isr if member in after.replicas]
            assert (result.leader_id, result.leader_epoch) == (after.leader, after.leader_epoch)
            assert result.partition_epoch == after.partition_epoch
        else:
            assert after == partition

    @rule(topic=TOPICS, partitions=st.integers(1, 3), factor=st.integers(1, 4))
    def create(self, topic: str, partitions: int, factor: int) -> None:
        response = self.controller.create(topic, partitions=partitions, replication_factor=factor)
        created = response.topics[0].error_code == ErrorCode.NONE
        assert created == bool(self.controller.records)
        if created:
            made = self.controller.state.topics[TopicId(response.topics[0].topic_id)]
            assert all(partition.leader != NO_LEADER for partition in made.partitions.values())

    @rule(topic=TOPICS, index=st.integers(0, 2), wanted=st.none() | st.lists(BROKERS, unique=True, min_size=1, max_size=4))
    def reassign(self, topic: str, index: int, wanted: Sequence[int] | None) -> None:
        result = self.controller.reassign(topic, {index: wanted})[index]
        known = self.controller.state.topic_named(topic)
        if result.error_code != ErrorCode.NONE or known is None:
            assert self.controller.records == []
            return
        after = self.controller.partition(known.id, index)
        staying = [replica for replica in after.replicas if replica not in after.removing_replicas]
        if wanted is None:
            assert not after.is_reassigning
        else:
            assert staying == list(wanted)

    @rule(topic=TOPICS, count=st.integers(1, 4))
    def extend(self, topic: str, count: int) -> None:
        result = self.controller.create_partitions(topic, count)
        assert (result.error_code == ErrorCode.NONE) == bool(self.controller.records)

    @rule(topic=TOPICS, election_type=st.sampled_from(ElectionType))
    def elect(self, topic: str, election_type: ElectionType) -> None:
        known = self.controller.state.topic_named(topic)
        if known is None:
            return
        for (_, index), result in self.controller.elect(
            {topic: list(known.partitions)}, election_type=election_type
        ).items():
            partition = self.controller.partition(known.id, index)
            if result.error_code == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
                assert partition.leader == NO_LEADER
            if result.error_code == ErrorCode.ELECTION_NOT_NEEDED:
                assert partition.leader != NO_LEADER

    @rule(topic=TOPICS)
    def delete(self, topic: str) -> None:
        if topic == "t0":
            return
        self.controller.delete(topic)
        assert self.controller.state.topic_named(topic) is None

    @rule()
    def sweep(self) -> None:
        self.controller.sweep()
        for topic_id, index in self.controller.state.partitions_led_by(NO_LEADER):
            partition = self.controller.partition(topic_id, index)
            assert not any(
                Eligibility(self.controller.state).is_eligible(member, partition.directory(member))
                for member in partition.isr
            )

    @rule()
    def prefer(self) -> None:
        self.controller.prefer()

    # --- always -------------------------------------------------------------------------------------------------

    @invariant()
    def no_reassignment_is_left_undone(self) -> None:
        """Once what a reassignment adds is in the ISR and the target can lead, the reassignment is complete, unless it
        reduces the number of replicas and not all that are left are in the ISR. The exception is a partition whose leader
        was elected uncleanly: its next ISR change completes the reassignment."""
        for topic_id, index in self.controller.state.reassigning_partitions():
            partition = self.controller.partition(topic_id, index)
            target = set(partition.replicas) - set(partition.removing_replicas)
            added = target & set(partition.adding_replicas)
            awaited = target if len(added) < len(partition.removing_replicas) else added
            if partition.leader != NO_LEADER and not partition.leader_recovery_state:
                assert not awaited <= set(partition.isr) or not target & set(partition.isr)

    @invariant()
    def the_log_says_it_all(self) -> None:
        """The state rebuilt from the log equals the live state."""
        rebuilt = MetadataState()
        for offset, record in enumerate(self.controller.log):
            rebuilt.replay(record, offset=Offset(offset))
        assert rebuilt == self.controller.state


ControllerMachine.TestCase.settings = settings(examples(150), stateful_step_count=40)
TestControllerMachine = pytest.mark.slow(ControllerMachine.TestCase)
