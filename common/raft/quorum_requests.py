"""Handles Fetch, FetchSnapshot and DescribeQuorum on the controller listener (shell).

Counterpart of the request handlers of KafkaRaftClient. A Fetch is answered at once if there are records, an error, a
divergence, a snapshot to take or a high watermark not yet sent to the fetcher. Otherwise it waits for an append or a commit,
up to its MaxWaitMs. A response with new records still carries the old watermark, because those records are not fsynced yet.
So the fetcher's next Fetch must be answered as soon as the watermark moves, even if there are no records to return.
"""

from collections.abc import Callable, Sequence

from common.environment.interface import Environment
from common.ids import LeaderEpoch, Offset, Uuid
from common.net.request_context import RequestContext
from common.parts import Part
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from common.protocol.messages.fetch import FetchRequest, FetchResponse
from common.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from common.raft.change_signal import ChangeSignal
from common.raft.core.fetch_validation import Diverging, NeedsSnapshot, ReadFrom, judge_fetch, validate_leader_only
from common.raft.core.leader_endpoints import LeaderEndpoints, QuorumEndpoint
from common.raft.core.offsets import OffsetAndEpoch
from common.raft.core.quorum import Quorum
from common.raft.core.quorum_messages import (
    Answerer,
    FetchPosition,
    describe_quorum_error,
    describe_quorum_response,
    fetch_error,
    fetch_position,
    fetch_response,
    fetch_snapshot_response,
    is_metadata_description,
    is_metadata_fetch,
    is_metadata_snapshot,
    is_this_cluster,
    requested_snapshot,
)
from common.raft.metadata_log import MetadataLog
from common.records.batch import BatchError
from common.storage.errors import OffsetOutOfRange
from common.time_units import NS_PER_MS

FETCH_BYTES_MAX = 8 * 1024 * 1024
# The longest wait of a Fetch. Without this limit, a client that asks to wait for weeks and disconnects would hold memory for
# weeks. Answering before MaxWaitMs is always allowed.
WAIT_MAX_MS = 60_000
# The most bytes of a snapshot in one response. These bytes are read into memory, unlike log records, which are sent from the
# file. The request server limits the requests in flight per connection.
SNAPSHOT_PIECE_MAX = 1024 * 1024


class QuorumRequests:
    """The handlers of the controller listener. The driver notifies `news` of every append, commit and leader change."""

    def __init__(
        self,
        env: Environment,
        *,
        cluster_id: str,
        directory_id: Uuid,
        quorum: Quorum,
        log: MetadataLog,
        endpoints: LeaderEndpoints,
        voters: tuple[QuorumEndpoint, ...],
        listener_name: str,
        news: ChangeSignal,
        advance_high_watermark: Callable[[], None],
    ) -> None:
        self._env = env
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._quorum = quorum
        self._log = log
        self._endpoints = endpoints
        self._voters = voters
        self._listener_name = listener_name
        self._news = news
        self._advance_high_watermark = advance_high_watermark
        # The damage that was logged last, so that retries do not log it again.
        self._reported_damage: str | None = None

    def _answerer(self) -> Answerer:
        leader = self._quorum.leader_and_epoch
        return Answerer(self._cluster_id, leader, self._endpoints.of(leader.leader_id))

    # --- Fetch ---------------------------------------------------------------------------------------------------
    async def handle_fetch(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        """Answers a Fetch, possibly after a long poll. Never raises ApiError: the response has a place for every error."""
        if not is_this_cluster(request.cluster_id, self._cluster_id):
            return fetch_error(ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not is_metadata_fetch(request):
            return fetch_error(ErrorCode.INVALID_REQUEST)
        position = fetch_position(request, context.peer)
        if position is None:
            return fetch_response(self._answerer(), error=ErrorCode.INVALID_REQUEST)
        deadline_ns = self._env.now_ns() + min(position.max_wait_ms, WAIT_MAX_MS) * NS_PER_MS
        while True:
            seen_count = self._news.count
            response = await self._try_fetch(position, is_last=False)
            if response is not None:
                return response
            if not await self._news.wait(seen_count, deadline_ns=deadline_ns):
                response = await self._try_fetch(position, is_last=True)
                assert response is not None
                return response

    async def _try_fetch(self, position: FetchPosition, *, is_last: bool) -> FetchResponse | None:
        """Returns the response, or None if the Fetch should keep waiting."""
        error = validate_leader_only(self._quorum, position.epoch)
        if error is not ErrorCode.NONE:
            return fetch_response(self._answerer(), error=error)
        verdict = judge_fetch(self._log.view(), fetch_offset=position.offset, last_fetched_epoch=position.last_fetched_epoch)
        if not isinstance(verdict, ReadFrom):
            return self._answer(position, verdict=verdict)
        self._note_progress(position)
        if position.offset < self._log.log.written_offset:
            try:
                records = await self._log.read_parts(position.offset, max_bytes=min(position.max_bytes, FETCH_BYTES_MAX))
            except OffsetOutOfRange:
                # The log was cut past this offset in the meantime. The response to the next Fetch will name a snapshot.
                records = []
            except BatchError as damage:
                # As in Kafka. The fetcher tries again, and those that have this part of the log already follow on.
                self._report_damage(f"at offset {position.offset}: {damage}")
                return fetch_response(self._answerer(), error=ErrorCode.UNKNOWN_SERVER_ERROR)
            error = validate_leader_only(self._quorum, position.epoch)
            if error is not ErrorCode.NONE:
                return fetch_response(self._answerer(), error=error)
            if records or position.max_wait_ms == 0:
                return self._answer(position, records=records)
        if is_last or position.max_wait_ms == 0 or self._has_untold_high_watermark(position):
            return self._answer(position)
        return None

    def _report_damage(self, damage: str) -> None:
        if damage != self._reported_damage:
            self._reported_damage = damage
            self._env.log.error("metadata_log_damaged", reason=damage)

    def _note_progress(self, position: FetchPosition) -> None:
        if position.replica is None or position.replica.node_id == self._quorum.node_id:
            return
        moved = self._quorum.leader_progress().fetched(
            position.replica,
            end_offset=position.offset,
            leader_end=self._log.log.written_offset,
            wall_ms=self._env.wall_ms(),
        )
        if moved:
            self._quorum.replica_progressed()
            self._advance_high_watermark()

    def _has_untold_high_watermark(self, position: FetchPosition) -> bool:
        if position.replica is None:
            return False
        progress = self._quorum.leader_progress().progress_of(position.replica)
        return progress.sent_to != position.peer or progress.sent_high_watermark < self._quorum.reportable_high_watermark

    def _answer(
        self,
        position: FetchPosition,
        *,
        verdict: Diverging | NeedsSnapshot | None = None,
        records: Sequence[Part] = (),
    ) -> FetchResponse:
        # -1 until the leader knows of a commit in its epoch: what it remembers from before may be less than what a follower
        # knows, and an Apache Kafka broker ends if a high watermark goes back.
        high_watermark = self._quorum.reportable_high_watermark
        if position.replica is not None:
            progress = self._quorum.leader_progress().progress_of(position.replica)
            progress.sent_high_watermark, progress.sent_to = high_watermark, position.peer
        return fetch_response(
            self._answerer(),
            high_watermark=high_watermark,
            log_start_offset=self._log.log.log_start_offset,
            verdict=verdict,
            records=records,
        )

    # --- FetchSnapshot -------------------------------------------------------------------------------------------
    async def handle_fetch_snapshot(self, context: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """Answers with a piece of a snapshot. Never raises ApiError: the response has a place for every error."""
        if not is_this_cluster(request.cluster_id, self._cluster_id):
            return FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        asked = requested_snapshot(request)
        if asked is None:
            return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
        snapshot_id = OffsetAndEpoch(Offset(asked.snapshot_id.end_offset), LeaderEpoch(asked.snapshot_id.epoch))
        stored = self._log.stored_snapshot(snapshot_id)
        error = validate_leader_only(self._quorum, asked.current_leader_epoch)
        if not is_metadata_snapshot(request):
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif error is ErrorCode.NONE and stored is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif error is ErrorCode.NONE and stored is not None and not 0 <= asked.position < stored.size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if error is not ErrorCode.NONE or stored is None:
            return fetch_snapshot_response(self._answerer(), asked, topic_name=request.topics[0].name, error=error)
        # The snapshot cannot be deleted between its lookup above and the opening of its file: there is no await in between.
        size = max(1, min(request.max_bytes, SNAPSHOT_PIECE_MAX))
        piece = await self._log.read_snapshot_piece(snapshot_id, position=asked.position, size=size)
        return fetch_snapshot_response(self._answerer(), asked, size=stored.size, records=piece)

    # --- DescribeQuorum ------------------------------------------------------------------------------------------
    def handle_describe_quorum(self, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """Describes the quorum. Only the leader knows the progress of the replicas, so other nodes answer with an error."""
        if not is_metadata_description(request):
            return describe_quorum_error(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, self._answerer())
        if not self._quorum.is_leader:
            return describe_quorum_error(request, ErrorCode.NOT_LEADER_OR_FOLLOWER, self._answerer())
        progress = self._quorum.leader_progress()
        wall_ms = self._env.wall_ms()
        progress.forget_silent_observers(wall_ms)
        return describe_quorum_response(
            progress,
            directory_id=self._directory_id,
            log_end_offset=self._log.log.written_offset,
            high_watermark=self._quorum.reportable_high_watermark,
            wall_ms=wall_ms,
            voters=self._voters,
            listener_name=self._listener_name,
        )
