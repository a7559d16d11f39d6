"""A controller without its shell. Each verb of the context runs an operation, replays its records and checks the invariants.

Records are replayed one at a time, and the invariants of the image (I4, I6, I7, I9, I10 and I12 of the fault reference) are
checked after each record: even a node that has replayed only half of a batch must not see a leader on a failed disk. Every
record is also encoded in the version that the operation chose.
"""

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

from common.configuration.resolver import ConfigResolver
from common.configuration.server_loading import load_server_config
from common.ids import NO_LEADER, BrokerEpoch, BrokerId, DirectoryId, IncarnationId, Offset, TopicId, TopicIdPartition, Uuid
from common.metadata.metadata_version import (
    DIRECTORY_NUMBERING_FEATURE,
    LATEST_LEVEL,
    METADATA_VERSION_FEATURE,
)
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode
from common.protocol.messages import incremental_alter_configs
from common.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
)
from common.protocol.messages.alter_partition import RequestPartitionData as AlterPartitionData
from common.protocol.messages.alter_partition import RequestTopicData as AlterTopicData
from common.protocol.messages.alter_partition import ResponsePartitionData as AlterPartitionResult
from common.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopic,
)
from common.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from common.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from common.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from common.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from common.protocol.messages.elect_leaders import ElectionType, ElectLeadersRequest, PartitionResult, TopicPartitions
from common.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    OngoingTopicReassignment,
)
from common.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from common.protocol.numbering import Numbering
from common.records.metadata_frame import ApiMessageAndVersion, encode_record
from common.records.metadata_records import FeatureLevelRecord, KnownRecord, PartitionChangeRecord
from common.slices import at_once
from common.time_units import NS_PER_S
from controller.core.alter_configs import handle_incremental_alter_configs
from controller.core.alter_partition import handle_alter_partition
from controller.core.alter_partition_reassignments import alter_partition_reassignments
from controller.core.assign_replicas_to_dirs import handle_assign_replicas_to_dirs
from controller.core.broker_sessions import BrokerSessions
from controller.core.create_partitions import create_partitions
from controller.core.elect_leaders import elect_leaders
from controller.core.eligibility import Eligibility
from controller.core.fencing import fence_stale_broker
from controller.core.heartbeat import handle_broker_heartbeat
from controller.core.leaderless import elect_leaderless
from controller.core.list_partition_reassignments import list_partition_reassignments
from controller.core.long_decisions import Sliced
from controller.core.preferred import elect_preferred_leaders
from controller.core.registration import handle_broker_registration
from controller.core.result import ControllerEvent, ControllerResult
from controller.core.settings import ControllerSettings
from controller.core.topics import create_topics, delete_topics
from controller.core.turn import Turn
from controller.core.unfencing import AwaitedReplicas
from controller.core.unregister import handle_unregister_broker

CONTROLLER_ID = 100
CLUSTER_ID = "cluster-of-the-test"
SESSION_TIMEOUT_NS = 9_000_000_000
# The metadata offset of a heartbeat from a broker that has applied everything.
CAUGHT_UP = 2**40

Response = TypeVar("Response")


def directory(name: str) -> DirectoryId:
    """Returns a directory id that depends only on the short name. None of them is reserved."""
    return DirectoryId(Uuid(name.encode().ljust(16, b".")))


def incarnation(name: str) -> IncarnationId:
    return IncarnationId(Uuid(name.encode().ljust(16, b"!")))


def resolver(properties: Mapping[str, str]) -> ConfigResolver:
    """Returns the ConfigResolver of a controller with these properties in its server.properties."""
    given = {
        "process.roles": "controller",
        "node.id": str(CONTROLLER_ID),
        "controller.quorum.voters": f"{CONTROLLER_ID}@controller:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://:9093",
        **properties,
    }
    return ConfigResolver(load_server_config(given), given)


class ControllerContext:
    """The state, soft state and clock of one active controller."""

    def __init__(self, *, level: int = 21, unclean: bool = False, seed: int = 1, migration: bool = False) -> None:
        self.state = MetadataState()
        self.sessions = BrokerSessions(SESSION_TIMEOUT_NS)
        self.awaited = AwaitedReplicas(self.state)
        self.settings = ControllerSettings(
            cluster_id=CLUSTER_ID,
            session_timeout_ns=SESSION_TIMEOUT_NS,
            resolver=resolver({"unclean.leader.election.enable": "true"} if unclean else {}),
            is_zk_migration_enabled=migration,
        )
        self.now_ns = NS_PER_S
        self.rng = random.Random(seed)
        self.log: list[KnownRecord] = []
        self.last_records: list[ApiMessageAndVersion] = []
        self.last_events: list[ControllerEvent] = []
        self._topics_made = 0
        self._leaders: dict[tuple[TopicIdPartition, int], BrokerId] = {}
        self.apply(
            ControllerResult(
                [
                    ApiMessageAndVersion(FeatureLevelRecord(name=METADATA_VERSION_FEATURE, feature_level=level), 0),
                    ApiMessageAndVersion(FeatureLevelRecord(name=DIRECTORY_NUMBERING_FEATURE, feature_level=1), 0),
                ],
                None,
            )
        )

    # --- verbs --------------------------------------------------------------------------------------------------

    @property
    def next_write_offset(self) -> Offset:
        return Offset(len(self.log))

    def turn(self) -> Turn:
        """Returns the `Turn` of the next operation: the state, the settings, the time and its other inputs."""
        return Turn(
            state=self.state,
            sessions=self.sessions,
            awaited=self.awaited,
            settings=self.settings,
            now_ns=self.now_ns,
            next_write_offset=self.next_write_offset,
            rng=self.rng,
            new_uuid=self._new_uuid,
        )

    def apply(self, decided: ControllerResult[Response] | Sliced[ControllerResult[Response]]) -> Response:
        """Replays an operation's records one at a time and checks the invariants after each."""
        result = decided if isinstance(decided, ControllerResult) else at_once(decided)
        self.last_records = list(result.records)
        self.last_events = list(result.events)
        for written in result.records:
            assert encode_record(written.record, written.version, Numbering.KIP858)
            before = self._partition_of(written.record)
            self.state.replay(written.record, offset=self.next_write_offset)
            self.awaited.note(written.record)
            self.log.append(written.record)
            self._check_epochs(written.record, before)
            self.check_invariants()
        return result.response

    def register(
        self,
        broker_id: int,
        directories: Sequence[str] = (),
        *,
        incarnation_name: str = "first",
        rack: str | None = None,
        previous_epoch: int = -1,
        features: Sequence[tuple[str, int, int]] = (
            (METADATA_VERSION_FEATURE, 1, LATEST_LEVEL),
            (DIRECTORY_NUMBERING_FEATURE, 0, 1),
        ),
        cluster_id: str = CLUSTER_ID,
        is_migrating: bool = False,
    ) -> BrokerRegistrationResponse:
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            cluster_id=cluster_id,
            incarnation_id=incarnation(f"{broker_id}-{incarnation_name}"),
            listeners=[Listener(name="PLAINTEXT", host=f"host-{broker_id}", port=9092)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high) for name, low, high in features
            ],
            rack=rack,
            is_migrating_zk_broker=is_migrating,
            log_dirs=[directory(name) for name in directories],
            previous_broker_epoch=previous_epoch,
        )
        return self.apply(handle_broker_registration(self.turn(), request))

    def heartbeat(
        self,
        broker_id: int,
        *,
        offline: Sequence[str] = (),
        cordoned: Sequence[str] | None = None,
        want_fence: bool = False,
        want_shut_down: bool = False,
        metadata_offset: int = CAUGHT_UP,
        epoch: int | None = None,
    ) -> BrokerHeartbeatResponse:
        registration = self.state.brokers.get(BrokerId(broker_id))
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=epoch if epoch is not None else registration.epoch if registration is not None else -1,
            current_metadata_offset=metadata_offset,
            want_fence=want_fence,
            want_shut_down=want_shut_down,
            offline_log_dirs=[directory(name) for name in offline],
            cordoned_log_dirs=None if cordoned is None else [directory(name) for name in cordoned],
        )
        result = at_once(handle_broker_heartbeat(self.turn(), request))
        if registration is not None and not registration.in_controlled_shutdown and not want_shut_down:
            self._check_only_failed_directories_change(result, broker_id, request.offline_log_dirs)
        return self.apply(result)

    def start(
        self, broker_id: int, directories: Sequence[str] = (), *, rack: str | None = None, is_migrating: bool = False
    ) -> None:
        """Registers a broker and unfences it."""
        self.register(broker_id, directories, rack=rack, is_migrating=is_migrating)
        response = self.heartbeat(broker_id)
        assert response.error_code == ErrorCode.NONE
        assert not response.is_fenced

    def fence(self, broker_id: int) -> None:
        assert self.heartbeat(broker_id, want_fence=True).is_fenced

    def advance(self, seconds: float) -> None:
        self.now_ns += int(seconds * NS_PER_S)

    def fence_stale(self) -> BrokerId | None:
        return self.apply(fence_stale_broker(self.turn(), None))

    def create(
        self,
        name: str,
        assignments: Sequence[Sequence[int]] = (),
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        validate_only: bool = False,
    ) -> CreateTopicsResponse:
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(assignments)
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        return self.create_request(CreateTopicsRequest(topics=[topic], validate_only=validate_only))

    def create_request(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        return self.apply(create_topics(self.turn(), request))

    def alter_configs(
        self,
        *changes: tuple[str, int, str | None],
        resource_type: int = 2,
        name: str = "t",
        validate_only: bool = False,
        is_forwarded: bool = False,
    ) -> tuple[int, str | None]:
        """Changes keys of one resource, each given as (key, operation, value). Returns the error code and the message."""
        resource = incremental_alter_configs.AlterConfigsResource(
            resource_type=resource_type,
            resource_name=name,
            configs=[
                incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
                for key, operation, value in changes
            ],
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        operation = handle_incremental_alter_configs(self.turn(), request, is_forwarded=is_forwarded)
        (response,) = self.apply(operation).responses
        assert (response.resource_type, response.resource_name) == (resource_type, name)
        return response.error_code, response.error_message

    def topic(
        self,
        name: str,
        assignments: Sequence[Sequence[int]],
        directories: Mapping[int, str] | None = None,
        configs: Mapping[str, str | None] | None = None,
    ) -> TopicId:
        """Creates a topic with these replica lists. `directories` maps a broker to the directory that all its replicas of
        the topic are assigned to."""
        response = self.create(name, assignments, configs=configs)
        assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0].error_message
        topic_id = TopicId(response.topics[0].topic_id)
        for broker_id, directory_name in (directories or {}).items():
            indexes = [index for index, brokers in enumerate(assignments) if broker_id in brokers]
            self.assign(broker_id, {directory_name: [TopicIdPartition(topic_id, index) for index in indexes]})
        return topic_id

    def delete(self, *names: str, ids: Sequence[TopicId] = ()) -> DeleteTopicsResponse:
        topics = [DeleteTopicState(topic_id=topic_id) for topic_id in ids]
        request = DeleteTopicsRequest(topics=topics, topic_names=list(names))
        return self.apply(delete_topics(self.turn(), request))

    def assign(
        self,
        broker_id: int,
        assignments: Mapping[str, Sequence[TopicIdPartition]],
        *,
        ids: Mapping[DirectoryId, Sequence[TopicIdPartition]] | None = None,
        epoch: int | None = None,
    ) -> AssignReplicasToDirsResponse:
        wishes = {directory(name): keys for name, keys in assignments.items()} | dict(ids or {})
        request = AssignReplicasToDirsRequest(
            broker_id=broker_id,
            broker_epoch=self.epoch(broker_id) if epoch is None else epoch,
            directories=[
                RequestDirectoryData(
                    id=directory_id,
                    topics=[
                        RequestTopicData(topic_id=topic_id, partitions=[RequestPartitionData(partition_index=index)])
                        for topic_id, index in keys
                    ],
                )
                for directory_id, keys in wishes.items()
            ],
        )
        return self.apply(handle_assign_replicas_to_dirs(self.turn(), request))

    def alter(self, topic_id: TopicId, index: int, isr: Sequence[int], **other: int) -> AlterPartitionResult:
        """Sends AlterPartition from the partition's leader; `other` overrides fields of the request."""
        partition = self.state.partition(topic_id, index)
        sender = other.pop("sender", partition.leader if partition is not None else 1)
        wish = AlterPartitionData(
            partition_index=index,
            leader_epoch=other.pop("leader_epoch", partition.leader_epoch if partition is not None else 0),
            partition_epoch=other.pop("partition_epoch", partition.partition_epoch if partition is not None else 0),
            leader_recovery_state=other.pop("leader_recovery_state", 0),
            new_isr_with_epochs=[
                BrokerState(broker_id=member, broker_epoch=other.get(f"epoch_of_{member}", -1)) for member in isr
            ],
        )
        response = self.alter_request(sender, topic_id, wish)
        return response.topics[0].partitions[0]

    def alter_request(self, sender: int, topic_id: TopicId, *wishes: AlterPartitionData) -> AlterPartitionResponse:
        request = AlterPartitionRequest(
            broker_id=sender,
            broker_epoch=self.epoch(sender),
            topics=[AlterTopicData(topic_id=topic_id, partitions=list(wishes))],
        )
        return self.apply(handle_alter_partition(self.turn(), request))

    def reassign(
        self, name: str, targets: Mapping[int, Sequence[int] | None], *, allow_replication_factor_change: bool = True
    ) -> dict[int, ReassignablePartitionResponse]:
        """Reassigns partitions of a topic. The target None cancels a reassignment. Returns the results by partition."""
        partitions = [
            ReassignablePartition(partition_index=index, replicas=None if replicas is None else list(replicas))
            for index, replicas in targets.items()
        ]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=partitions)],
            allow_replication_factor_change=allow_replication_factor_change,
        )
        response = self.apply(alter_partition_reassignments(self.turn(), request))
        return {result.partition_index: result for result in response.responses[0].partitions}

    def reassignments(self, topics: Mapping[str, Sequence[int]] | None = None) -> list[OngoingTopicReassignment]:
        """Returns the ongoing reassignments of these partitions, or of all partitions."""
        wanted = None
        if topics is not None:
            wanted = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=list(indexes))
                for name, indexes in topics.items()
            ]
        request = ListPartitionReassignmentsRequest(topics=wanted)
        return self.apply(at_once(list_partition_reassignments(self.turn(), request))).topics

    def create_partitions(
        self,
        name: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None = None,
        *,
        validate_only: bool = False,
    ) -> CreatePartitionsTopicResult:
        made = None
        if assignments is not None:
            made = [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments]
        topic = CreatePartitionsTopic(name=name, count=count, assignments=made)
        request = CreatePartitionsRequest(topics=[topic], validate_only=validate_only)
        (result,) = self.apply(create_partitions(self.turn(), request)).results
        return result

    def elect(
        self, partitions: Mapping[str, Sequence[int]] | None = None, *, election_type: int = ElectionType.PREFERRED
    ) -> dict[tuple[str, int], PartitionResult]:
        """Elects leaders of these partitions, or of all partitions. Returns the results by topic and partition."""
        named = None
        if partitions is not None:
            named = [TopicPartitions(topic=name, partitions=list(indexes)) for name, indexes in partitions.items()]
        request = ElectLeadersRequest(topic_partitions=named, election_type=election_type)
        response = self.apply(elect_leaders(self.turn(), request))
        return {
            (topic.topic, result.partition_id): result
            for topic in response.replica_election_results
            for result in topic.partition_result
        }

    def unregister(self, broker_id: int) -> UnregisterBrokerResponse:
        request = UnregisterBrokerRequest(broker_id=broker_id)
        return self.apply(handle_unregister_broker(self.turn(), request))

    def sweep(self) -> int:
        return self.apply(elect_leaderless(self.turn(), None))

    def prefer(self) -> int:
        return self.apply(elect_preferred_leaders(self.turn(), None))

    # --- look-ups of the state -----------------------------------------------------------------------------------

    def epoch(self, broker_id: int) -> BrokerEpoch:
        return self.state.brokers[BrokerId(broker_id)].epoch

    def partition(self, topic_id: TopicId, index: int = 0) -> PartitionRegistration:
        return self.state.topics[topic_id].partitions[index]

    def leader_and_isr(self, topic_id: TopicId, index: int = 0) -> tuple[int, list[int]]:
        partition = self.partition(topic_id, index)
        return partition.leader, list(partition.isr)

    @property
    def records(self) -> list[KnownRecord]:
        """Returns the records that the last operation wrote."""
        return [written.record for written in self.last_records]

    def event(self, name: str) -> Mapping[str, object]:
        """Returns the fields of the only event with this name that the last operation emitted."""
        (found,) = [event.fields for event in self.last_events if event.name == name]
        return found

    def _new_uuid(self) -> Uuid:
        self._topics_made += 1
        return Uuid(b"topic" + self._topics_made.to_bytes(11, "big"))

    # --- invariants ---------------------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        owners: dict[DirectoryId, BrokerId] = {}
        for broker in self.state.brokers.values():
            for directory_id in broker.directories:
                assert owners.setdefault(directory_id, broker.broker_id) == broker.broker_id
                assert directory_id not in broker.lost_directories
        for topic in self.state.topics.values():
            for partition in topic.partitions.values():
                self._check_partition(partition)

    def _check_partition(self, partition: PartitionRegistration) -> None:
        for changing in (partition.adding_replicas, partition.removing_replicas):
            assert list(changing) == sorted(set(changing) & set(partition.replicas))
        assert set(partition.replicas) - set(partition.adding_replicas)
        assert set(partition.replicas) - set(partition.removing_replicas)
        assert len(partition.directories) == len(partition.replicas)
        assert partition.isr
        assert set(partition.isr) <= set(partition.replicas)
        eligible = [
            member for member in partition.isr if Eligibility(self.state).is_eligible(member, partition.directory(member))
        ]
        if partition.leader != NO_LEADER:
            assert partition.leader in eligible
        if len(partition.isr) > 1:
            assert eligible == list(partition.isr)

    def _check_epochs(self, record: KnownRecord, before: PartitionRegistration | None) -> None:
        if before is None or not isinstance(record, PartitionChangeRecord):
            return
        key = TopicIdPartition(TopicId(record.topic_id), record.partition_id)
        after = self.partition(*key)
        assert after.partition_epoch == before.partition_epoch + 1
        assert after.leader_epoch >= before.leader_epoch
        assert after.leader_epoch > before.leader_epoch or after.leader == before.leader
        assert self._leaders.setdefault((key, after.leader_epoch), after.leader) == after.leader

    def _partition_of(self, record: KnownRecord) -> PartitionRegistration | None:
        if isinstance(record, PartitionChangeRecord):
            return self.state.partition(TopicId(record.topic_id), record.partition_id)
        return None

    def _check_only_failed_directories_change(
        self, result: ControllerResult[BrokerHeartbeatResponse], broker_id: int, offline: Sequence[Uuid]
    ) -> None:
        """Checks I12: a heartbeat that only reports failed directories changes only partitions that have a replica in these
        directories."""
        registration = self.state.brokers[BrokerId(broker_id)]
        if result.response.is_fenced != registration.fenced:
            return
        for written in result.records:
            record = written.record
            if isinstance(record, PartitionChangeRecord):
                partition = self.partition(TopicId(record.topic_id), record.partition_id)
                assert partition.directory(BrokerId(broker_id)) in offline
