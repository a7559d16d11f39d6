"""The group coordinator of a broker: the groups and offsets of the led partitions of `__consumer_offsets` (shell).

Counterpart of Kafka's GroupCoordinatorService. What it has in common with the transaction coordinator is in
`coordinator_runtime`.
"""

from collections.abc import Callable, Collection

from broker.coordinator.coordinator_runtime import CoordinatorRuntime
from broker.coordinator.core.group_partition import OFFSETS_TOPIC
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.result import Caller
from broker.coordinator.core.transactions.verification import RETRIABLE, Question, offset_commit_error
from broker.coordinator.transaction_verifier import TransactionVerifier
from broker.coordinator.waiting_request import WaitingRequest
from broker.core.verification_guards import VerificationGuard
from broker.hosting.partition import Partition
from common.metadata.delta import MetadataDelta
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from common.protocol.messages.write_txn_markers import WritableTxnMarkerPartitionResult
from common.records.batch import NO_SEQUENCE
from common.records.end_transaction import EndTransactionMarker
from common.storage.producers.state import InvalidProducerEpoch


class GroupCoordinator(CoordinatorRuntime[GroupShard]):
    """See the module docstring."""

    topic = OFFSETS_TOPIC

    # --- transactions --------------------------------------------------------------------------------------------

    def commit_transactional(
        self,
        request: TxnOffsetCommitRequest,
        waiting: WaitingRequest,
        verifier: TransactionVerifier,
        *,
        caller: Caller,
        knows_abortable: bool,
        is_add: bool,
    ) -> None:
        """Makes the offsets pending in the producer's transaction. Refuses a producer that has been fenced, and asks the
        transaction coordinator first if the offsets would begin a transaction in the group's partition (KIP-890). With
        `is_add`, asks it to add the partition."""
        found = self._partition_of(request.group_id)
        is_served = found is not None and found.is_loaded and found.partition.leader_error() is ErrorCode.NONE
        if found is None or not is_served or not (is_add or verifier.is_enabled):
            self._commit_transactional(request, waiting, caller, must_be_verified=False, guard=None)
            return
        partition = found.partition
        try:
            guard = partition.begin_verification(request.producer_id, request.producer_epoch, NO_SEQUENCE)
        except InvalidProducerEpoch:
            waiting.refuse(ErrorCode.INVALID_PRODUCER_EPOCH)
            return
        if guard is None:
            self._commit_transactional(request, waiting, caller, must_be_verified=True, guard=None)
            return

        def verified(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._commit_transactional(request, waiting, caller, must_be_verified=True, guard=guard)
                return
            if error not in RETRIABLE:
                partition.verification_guards.drop(guard)
            waiting.refuse(offset_commit_error(error, knows_abortable=knows_abortable))

        producer = request.producer_id, request.producer_epoch
        question = Question(request.transactional_id, *producer, partition.topic, partition.index, is_add)
        verifier.verify(question, guard, verified)

    def _commit_transactional(
        self,
        request: TxnOffsetCommitRequest,
        waiting: WaitingRequest,
        caller: Caller,
        *,
        must_be_verified: bool,
        guard: VerificationGuard | None,
    ) -> None:
        found = self._partition_of(request.group_id)
        if found is None:
            waiting.refuse(self._refusal_of(request.group_id))
            return
        if guard is not None and guard.leader_epoch != found.leader_epoch:
            waiting.refuse(ErrorCode.NOT_COORDINATOR)
            return
        # Asked before the shard changes its state, because it cannot take a change back.
        error = found.partition.transactional_append_error(
            request.producer_id, request.producer_epoch, must_be_verified=must_be_verified, guard=guard
        )
        if found.is_loaded and error is not ErrorCode.NONE:
            waiting.refuse(error)
            return
        found.perform(waiting, lambda shard, now: [shard.commit_transactional_offsets(now, waiting, caller, request)])

    def write_marker(self, partition: Partition, marker: EndTransactionMarker, on_done: Callable[[ErrorCode], None]) -> None:
        """Ends a transaction in a partition of `__consumer_offsets`: writes the marker, and commits or drops the offsets
        that are pending. Calls `on_done` with NONE once the marker is replicated, or with an error of the partition."""
        found = self._partitions.get(partition.key)
        if found is None or found.partition is not partition:
            on_done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return
        error = partition.marker_error(marker)
        if found.is_loaded and error is not ErrorCode.NONE:
            on_done(error)
            return
        # The shard knows the end of the transaction from now on, even if the append is held back.
        partition.end_guards(marker)
        waiting = WaitingRequest(ApiKey.WRITE_TXN_MARKERS, lambda error: WritableTxnMarkerPartitionResult(error_code=error))
        waiting.future.add_done_callback(lambda future: on_done(_partition_error(future.result().error_code)))
        found.perform(waiting, lambda shard, now: [shard.end_transaction(now, waiting, marker)])

    # --- what changes --------------------------------------------------------------------------------------------

    def topics_removed(self, names: Collection[str]) -> None:
        """Drops the committed offsets of topics that have just left the image. Later it would be too late: the same offsets
        could belong to a new topic of the same name. A shard that is being loaded drops them once it is loaded: nothing is
        committed before that."""
        for each in list(self._partitions.values()):
            each.perform_once_loaded(lambda shard, now: shard.topics_deleted(now, names))

    def metadata_changed(self, delta: MetadataDelta) -> None:
        """Notifies the consumer groups of the topics that have changed."""
        names = {topic.name for topic in delta.removed_topics.values()}
        # A topic that has been deleted since is in a later delta.
        topics = [self._state.topics.get(key.topic_id) for key in delta.created_partitions]
        changed = {topic.name for topic in topics if topic is not None}
        changed.update(names, (topic.name for topic in delta.created_topics.values()))
        if changed:
            has_other_names = bool(names or delta.created_topics)
            for each in list(self._partitions.values()):
                each.perform_unasked(lambda shard, now: shard.topics_changed(now, changed, has_other_names=has_other_names))


def _partition_error(error: int) -> ErrorCode:
    """Returns what an error of the coordinator means to the sender of a marker, who knows leaders only."""
    is_coordinators = error in (
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    )
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_coordinators else ErrorCode(error)
