"""The fetch loop of a node that does not lead. Today only observers follow, because a quorum has one voter (shell).

Counterpart of the follower half of KafkaRaftClient. One step fetches from the end of the local log and carries out the
response: append, truncate, download a snapshot, or turn to another leader. Fetched batches are written before they are
delivered, but not fsynced: no commit depends on an observer's log, and the next start truncates a torn tail. If a response
names a new leader or a newer epoch, the rest of that response must be ignored.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from common.environment.interface import Environment
from common.ids import Offset
from common.net.node_channel import ChannelError
from common.parts import Buffer
from common.protocol.errors import ErrorCode, error_name
from common.protocol.messages.fetch import FetchResponse, PartitionData
from common.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from common.protocol.schema import Struct
from common.raft.commit_queue import CommitQueue
from common.raft.core.fetch_validation import (
    AppendFetched,
    FetchAgain,
    FetchTheSnapshot,
    LeaderLostRecords,
    TruncateTo,
    TruncationBelowHighWatermark,
    judge_answer,
)
from common.raft.core.leader_endpoints import LeaderEndpoints, QuorumEndpoint
from common.raft.core.offsets import OffsetAndEpoch
from common.raft.core.quorum import Quorum
from common.raft.core.quorum_messages import (
    LeaderNews,
    facts_of,
    fetch_request,
    fetch_snapshot_request,
    fetched_partition,
    fetched_snapshot,
    leader_news,
    snapshot_leader_news,
)
from common.raft.core.record_batches import UnreadableBatch, check_batch
from common.raft.core.replica_progress import ReplicaKey
from common.raft.core.snapshot_content import InvalidSnapshot, parse_snapshot
from common.raft.errors import QuorumFailure
from common.raft.metadata_log import MetadataLog, SnapshotFile
from common.records.batch import BatchError, BatchHeader, split_batches
from common.time_units import NS_PER_MS

MAX_WAIT_MS = 500
# How much of the log to fetch at once. Kept small, because the records of one response may be committed, and then they are
# decoded in one step of the event loop. These are up to about 12,000 partition changes, and 50 ms.
FETCH_BYTES_MAX = 512 * 1024
# How much may wait for the disk before the next answer does.
UNWRITTEN_BYTES_MAX = 8 * FETCH_BYTES_MAX
SNAPSHOT_PIECE_BYTES = 1024 * 1024


class QuorumChannel(Protocol):
    """The part of NodeChannel that the follower uses."""

    async def send(self, request: Struct, *, version: int | None = None, deadline_ns: int) -> Any: ...

    def close(self) -> None: ...


Channels = Callable[[str, int], QuorumChannel]


class Follower:
    """Fetches from the leader, one step at a time."""

    def __init__(
        self,
        env: Environment,
        *,
        cluster_id: str,
        replica: ReplicaKey,
        request_timeout_ms: int,
        quorum: Quorum,
        log: MetadataLog,
        queue: CommitQueue,
        endpoints: LeaderEndpoints,
        channels: Channels,
    ) -> None:
        self._env = env
        self._cluster_id = cluster_id
        self._replica = replica
        self._request_timeout_ns = request_timeout_ms * NS_PER_MS
        self._quorum = quorum
        self._log = log
        self._queue = queue
        self._endpoints = endpoints
        self._channels = channels
        # One channel per address (host, port). A channel is kept until `close`, whether or not its node still leads.
        self._open_channels: dict[tuple[str, int], QuorumChannel] = {}
        # The reason for the last logged failure; None after a success. A failure is logged only if its reason differs.
        self._last_trouble: str | None = None
        # The futures of `next_answer`. Resolved and removed whenever `last_answer_asked_ns` moves.
        self._waiting: list[asyncio.Future[None]] = []
        self.last_answer_asked_ns = -1
        """Send time of the newest Fetch that showed the local log to be at the leader's high watermark. Starts at -1."""

    async def step(self) -> None:
        """Sends one Fetch and carries out the response. Raises QuorumFailure and LogDirError."""
        view = self._log.view()
        end = self._log.end
        request = fetch_request(
            cluster_id=self._cluster_id,
            replica=self._replica,
            epoch=self._quorum.epoch,
            end=end,
            high_watermark=self._quorum.high_watermark,
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=FETCH_BYTES_MAX,
        )
        asked_ns = self._env.now_ns()
        response = await self._send(request, wait_ms=MAX_WAIT_MS)
        if response is None:
            return
        partition = await self._understood(response)
        if partition is None:
            return
        leader_changed = self._learn(leader_news(partition, response))
        if not leader_changed and partition.error_code == ErrorCode.NONE and self._quorum.leader_id is None:
            # Only a leader answers without an error, but this response names no leader and none was known. Do not trust it.
            await self._pause("an answer without a leader")
            return
        try:
            step = judge_answer(
                view,
                facts_of(partition),
                leader_changed=leader_changed,
                epoch=self._quorum.epoch,
                high_watermark=self._quorum.high_watermark,
            )
        except (TruncationBelowHighWatermark, LeaderLostRecords) as error:
            raise QuorumFailure(str(error)) from error
        match step:
            case AppendFetched(high_watermark):
                await self._append(partition, high_watermark, asked_ns=asked_ns)
            case TruncateTo(offset):
                await self._truncate(offset)
            case FetchTheSnapshot(snapshot_id):
                await self._take_snapshot(snapshot_id)
            case FetchAgain(at_once):
                if not at_once:
                    await self._pause(error_name(partition.error_code))

    async def next_answer(self) -> None:
        """Waits for the next Fetch response whose high watermark the local log has reached."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        await answered

    def close(self) -> None:
        channels, self._open_channels = self._open_channels, {}
        for channel in channels.values():
            channel.close()

    # --- asking --------------------------------------------------------------------------------------------------
    async def _send(self, request: Struct, *, wait_ms: int = 0) -> Any:
        """Sends a request to the leader or to a voter. Returns the response, or None after a failure and a pause."""
        target = self._endpoints.target(self._quorum.leader_id)
        deadline_ns = self._env.now_ns() + wait_ms * NS_PER_MS + self._request_timeout_ns
        try:
            return await self._channel(target).send(request, deadline_ns=deadline_ns)
        except ChannelError as error:
            await self._pause(str(error))
            return None

    def _channel(self, target: QuorumEndpoint) -> QuorumChannel:
        address = (target.host, target.port)
        channel = self._open_channels.get(address)
        if channel is None:
            channel = self._open_channels[address] = self._channels(*address)
        return channel

    async def _pause(self, trouble: str) -> None:
        """Logs the failure and sleeps before the next attempt, which may go to another voter."""
        if trouble != self._last_trouble:
            self._last_trouble = trouble
            self._env.log.warning("metadata_fetch_failed", reason=trouble)
        pause_ms = self._endpoints.failed()
        await self._env.sleep_until(self._env.now_ns() + pause_ms * NS_PER_MS)

    def _works(self) -> None:
        self._last_trouble = None
        self._endpoints.answered()

    async def _understood(self, response: FetchResponse) -> PartitionData | None:
        """Returns the metadata partition of a response. If the response has an error instead, pauses and returns None.

        Raises QuorumFailure if the controller belongs to another cluster.
        """
        self._check_cluster(response.error_code)
        partition = fetched_partition(response)
        if response.error_code != ErrorCode.NONE or partition is None:
            await self._pause(error_name(response.error_code))
            return None
        return partition

    def _check_cluster(self, error_code: int) -> None:
        if error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            raise QuorumFailure(
                f"the controllers belong to another cluster than this node, whose cluster.id is {self._cluster_id}"
            )

    def _learn(self, news: LeaderNews) -> bool:
        """Takes over the leader and addresses that a response names.

        Returns True if the leader or epoch is new to this node. The rest of the response must then be ignored.
        """
        for endpoint in news.endpoints:
            self._endpoints.learn(endpoint)
        if news.leader is None:
            return False
        self._quorum.leader_discovered(news.leader.leader_id, news.leader.epoch)
        if not self._quorum.has_staged_election:
            return False
        self._works()
        return True

    # --- carrying out --------------------------------------------------------------------------------------------
    async def _append(self, partition: PartitionData, high_watermark: Offset, *, asked_ns: int) -> None:
        """Appends what was fetched, and commits it without waiting for the disk: it is the leader's log that counts. While
        the disk of this log hangs, the broker goes on following the changes of leaders and ISRs."""
        await self._log.limit_unwritten(UNWRITTEN_BYTES_MAX)
        batches = self._fetched_batches(partition)
        if batches is None:
            await self._pause("a batch that is damaged or does not continue the log")
            return
        self._works()
        if batches:
            # The complete batches are contiguous at the start of the response, so append them as one view.
            assert isinstance(partition.records, Buffer)
            size = sum(header.size for header, _ in batches)
            self._log.append_as_follower(batches, memoryview(partition.records)[:size])
            for header, view in batches:
                self._queue.push_fetched(header, view)
        self._quorum.leader_reported(high_watermark, log_end_offset=self._log.end.offset)
        if 0 <= high_watermark <= self._log.end.offset:
            self._note_answer(asked_ns)

    def _note_answer(self, asked_ns: int) -> None:
        self.last_answer_asked_ns = asked_ns
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def _fetched_batches(self, partition: PartitionData) -> list[tuple[BatchHeader, memoryview]] | None:
        """Returns the whole batches of a response, or None if they are damaged or do not continue the log."""
        records = partition.records
        if not isinstance(records, Buffer) or len(records) == 0:
            return []
        next_offset = self._log.end.offset
        try:
            batches = split_batches(records, allow_partial_tail=True)
            for header, view in batches:
                check_batch(header, view)
                if header.base_offset != next_offset or header.partition_leader_epoch > self._quorum.epoch:
                    return None
                next_offset = Offset(header.next_offset)
        except (BatchError, UnreadableBatch):
            return None
        return batches

    async def _truncate(self, offset: Offset) -> None:
        self._works()
        await self._log.limit_unwritten(0)
        self._env.log.info("metadata_log_truncated", offset=offset, log_end_offset=self._log.end.offset)
        end = await self._log.log.truncate_to(offset)
        if end < self._quorum.high_watermark:
            raise QuorumFailure(
                f"the metadata log was truncated to offset {end}, and all before {self._quorum.high_watermark} is committed"
            )
        self._queue.drop_from(end)

    # --- snapshots -----------------------------------------------------------------------------------------------
    async def _take_snapshot(self, snapshot_id: OffsetAndEpoch) -> None:
        self._works()
        if snapshot_id.offset < self._quorum.high_watermark:
            raise QuorumFailure(
                f"the leader asks to go back to a snapshot at offset {snapshot_id.offset}, "
                f"and all before {self._quorum.high_watermark} is committed"
            )
        # This node may already have the snapshot: it may have written it itself, or downloaded it before a crash.
        if self._log.stored_snapshot(snapshot_id) is None and not await self._download(snapshot_id):
            return
        await self._log.limit_unwritten(0)
        await self._log.start_at_snapshot(snapshot_id)
        self._quorum.snapshot_installed(snapshot_id.offset)
        self._queue.start_at_snapshot(snapshot_id)
        self._env.log.info("metadata_snapshot_fetched", end_offset=snapshot_id.offset, epoch=snapshot_id.epoch)

    async def _download(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Downloads and publishes the snapshot. Returns False if that failed and the follower should send a Fetch again."""
        file = await self._log.begin_snapshot(snapshot_id)
        if await self._fill(file):
            try:
                parse_snapshot(await file.read_whole())
            except (InvalidSnapshot, UnreadableBatch) as error:
                await file.discard()
                await self._pause(f"the snapshot at offset {snapshot_id.offset} is damaged: {error}")
                return False
            await self._log.publish_snapshot(file)
            return True
        await file.discard()
        return False

    async def _fill(self, file: SnapshotFile) -> bool:
        """Downloads the snapshot piece by piece. Returns False if a request failed or the leader changed."""
        while True:
            request = fetch_snapshot_request(
                cluster_id=self._cluster_id,
                replica=self._replica,
                epoch=self._quorum.epoch,
                snapshot_id=file.snapshot_id,
                position=file.size,
                max_bytes=SNAPSHOT_PIECE_BYTES,
            )
            response: FetchSnapshotResponse | None = await self._send(request)
            if response is None:
                return False
            self._check_cluster(response.error_code)
            partition = fetched_snapshot(response)
            if response.error_code != ErrorCode.NONE or partition is None:
                await self._pause(error_name(response.error_code))
                return False
            if self._learn(snapshot_leader_news(partition, response)):
                return False
            piece = partition.unaligned_records
            whole = isinstance(piece, Buffer) and len(piece) > 0
            if partition.error_code != ErrorCode.NONE or partition.position != file.size or not whole:
                await self._pause(error_name(partition.error_code))
                return False
            assert isinstance(piece, Buffer)
            await file.append([piece])
            self._works()
            if file.size >= partition.size:
                return file.size == partition.size
