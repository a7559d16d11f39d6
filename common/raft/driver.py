"""The quorum driver: a node's only client of the metadata log, whatever its roles (shell).

Counterpart of KafkaRaftClient and RaftManager. A node with both roles has one driver with two listeners.

- `open` recovers the log.
- `run` elects this node or follows the leader, delivers committed records and writes snapshots.
- A leader groups its appends: records scheduled while one append and fsync is in flight form the next group.
  The high watermark moves only after the fsync.
- Records get their offsets when they are *scheduled*, while they exist only in memory. A driver that stops leading must
  therefore take back the offsets of records that it never appended, and fail the tasks that wait for their commit.
"""

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from common.environment.interface import Environment, LogDir, LogDirError
from common.ids import BrokerId, DirectoryId, Offset
from common.metadata.metadata_version import METADATA_VERSION_FEATURE, numbering_of
from common.metadata.record_reader import MetadataRecordReader
from common.metadata.state import UnsupportedFeatureLevel
from common.net.request_context import RequestContext
from common.protocol.errors import ApiError, ErrorCode
from common.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from common.protocol.messages.fetch import FetchRequest, FetchResponse
from common.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from common.protocol.numbering import Numbering
from common.raft.bootstrap import bootstrap_records
from common.raft.change_signal import ChangeSignal
from common.raft.commit_queue import CommitQueue
from common.raft.core.leader_endpoints import LeaderEndpoints, QuorumEndpoint
from common.raft.core.offsets import BOOTSTRAP_CHECKPOINT, METADATA_LOG_FOLDER, OffsetAndEpoch
from common.raft.core.quorum import LeaderAndEpoch, LeaderChange, Quorum, QuorumViolation, Ready
from common.raft.core.quorum_records import QuorumRecords
from common.raft.core.record_batches import CommittedBatch, EncodedBatch, UnreadableBatch, encode_batches
from common.raft.core.replica_progress import ReplicaKey
from common.raft.core.snapshot_policy import SnapshotTriggers
from common.raft.errors import NotLeader, QuorumFailure
from common.raft.follower import Channels, Follower
from common.raft.listener import MetadataListener
from common.raft.metadata_log import MetadataLog, MetadataLogConfig
from common.raft.quorum_requests import QuorumRequests
from common.raft.snapshot_writer import SnapshotWriter
from common.records.control import LeaderChangeMessage, LeaderChangeVoter, encode_control_batch
from common.records.metadata_frame import ApiMessageAndVersion
from common.records.metadata_records import AbortTransactionRecord, FeatureLevelRecord
from common.storage.append_pipeline import AwaitedAppend
from common.storage.errors import LogClosed

Response = TypeVar("Response")

_FIRST_NAMELESS_ID = -2


class QuorumServer(Protocol):
    """An entry of controller.quorum.bootstrap.servers."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


class QuorumVoter(QuorumServer, Protocol):
    """An entry of controller.quorum.voters."""

    @property
    def node_id(self) -> int: ...


class QuorumConfig(MetadataLogConfig, Protocol):
    """The keys of server.properties that the driver uses. `ServerConfig` satisfies this protocol."""

    @property
    def metadata_log_max_record_bytes_between_snapshots(self) -> int: ...

    @property
    def metadata_log_max_snapshot_interval_ms(self) -> int: ...

    @property
    def controller_quorum_request_timeout_ms(self) -> int: ...

    @property
    def controller_quorum_retry_backoff_ms(self) -> int: ...

    @property
    def controller_listener_names(self) -> Sequence[str]: ...


class QuorumDriver:
    """A node's client of the metadata log. Create it with `open`, then call `register` and `run` in any order."""

    def __init__(
        self,
        env: Environment,
        config: QuorumConfig,
        *,
        cluster_id: str,
        replica: ReplicaKey,
        voters: tuple[QuorumEndpoint, ...],
        servers: tuple[QuorumEndpoint, ...],
        channels: Channels,
        log: MetadataLog,
        reader: MetadataRecordReader,
        bootstrap_records: Sequence[ApiMessageAndVersion],
    ) -> None:
        """Called only by `open`, which recovers `log` and sets the numbering of `reader` to the one that the log uses."""
        self._env = env
        self._config = config
        self._log = log
        # Decodes the log's records, and knows the numbering that the log selects. Shared with the commit queue.
        self._reader = reader
        # The first records of a new cluster. They are written only if this node leads and the log is empty.
        self._bootstrap_records = tuple(bootstrap_records)
        newest = log.latest_snapshot
        committed_offset = Offset(0) if newest is None else newest.offset
        self._quorum = Quorum(
            node_id=replica.node_id,
            voters=[voter.node_id for voter in voters],
            election=log.election,
            last_log_epoch=log.end.epoch,
            high_watermark=committed_offset,
        )
        # Encoded batches that have offsets but have not yet been handed to the log.
        # Invariant: these batches continue the log without a gap. Emptied by the main loop, and on resignation.
        self._pending: list[EncodedBatch] = []
        # The offset that the next scheduled record gets. Invariant, on a leader: the end of the last pending batch, or of
        # the log if none is pending. Resignation resets it to the end of the log. A follower updates it after each Fetch.
        self._log_end_offset = log.end.offset
        # Wakes a leader's main loop. Set when a batch is pending, the high watermark has moved, or the node has resigned.
        self._work = asyncio.Event()
        # Wakes the long-polling fetches of other nodes. Notified when there are new records, a new high watermark or a new
        # leader.
        self._news = ChangeSignal(env)
        self._endpoints = LeaderEndpoints(servers, retry_backoff_ms=config.controller_quorum_retry_backoff_ms, rng=env.rng)
        self._queue = CommitQueue(log, reader, node_id=replica.node_id, committed_offset=committed_offset)
        self._follower = Follower(
            env,
            cluster_id=cluster_id,
            replica=replica,
            request_timeout_ms=config.controller_quorum_request_timeout_ms,
            quorum=self._quorum,
            log=log,
            queue=self._queue,
            endpoints=self._endpoints,
            channels=channels,
        )
        self._requests = QuorumRequests(
            env,
            cluster_id=cluster_id,
            directory_id=replica.directory_id,
            quorum=self._quorum,
            log=log,
            endpoints=self._endpoints,
            voters=voters,
            listener_name=config.controller_listener_names[0] if config.controller_listener_names else "",
            news=self._news,
            advance_high_watermark=self._high_watermark_moved,
        )
        self._snapshots = SnapshotWriter(env, log)
        # Wakes the snapshot task. Set after a delivery that makes a snapshot due.
        self._snapshot_due = asyncio.Event()
        # Held while a snapshot is being written, so that two are never written at the same time.
        self._snapshot_lock = asyncio.Lock()
        # The queue's `committed_bytes` at the last snapshot. Starts below zero: `committed_bytes` starts at zero, but the
        # bytes that the log already holds past the newest snapshot count too. Their number is estimated, to save a scan.
        self._bytes_at_snapshot = -_bytes_past(log, committed_offset)
        # Time of the last `write_snapshot`, successful or not. Before the first one, the time when the driver was created.
        self._last_snapshot_ns = env.now_ns()
        # The tasks spawned by `run` and `register`. `close` cancels them. Spawning a task removes the finished ones.
        self._tasks: list[asyncio.Task[None]] = []
        # The group in which `_spawn` starts tasks. None unless `run` is running.
        self._task_group: asyncio.TaskGroup | None = None
        # The future that `run` creates and waits for. A result ends `run` normally; an exception is raised by `run`.
        self._stopped: asyncio.Future[None] | None = None
        # Set once, by `close`. A node that is stopped during startup closes the driver before the task of `run` first runs;
        # `run` then returns at once.
        self._is_closed = False

    # --- life ----------------------------------------------------------------------------------------------------
    @classmethod
    async def open(
        cls,
        env: Environment,
        config: QuorumConfig,
        *,
        node_id: BrokerId,
        cluster_id: str,
        log_dir: LogDir,
        directory_id: DirectoryId,
        voters: Sequence[QuorumVoter],
        channels: Channels,
        bootstrap_servers: Sequence[QuorumServer] = (),
    ) -> "QuorumDriver":
        """Recovers the log, snapshots and election state from `log_dir`, which must be attached, and creates the driver.

        `channels(host, port)` creates a NodeChannel. A node that has no vote may know `bootstrap_servers` in place of the
        voters. Raises QuorumFailure and LogDirError."""
        endpoints = tuple(QuorumEndpoint(BrokerId(voter.node_id), voter.host, voter.port) for voter in voters)
        is_voter = any(voter.node_id == node_id for voter in endpoints)
        if is_voter and len(endpoints) > 1:
            raise QuorumFailure(f"node {node_id} is one of {len(endpoints)} voters; a quorum of one is served")
        log = await MetadataLog.load(env, log_dir, config)
        if is_voter:
            _check_sole_voter(await log.find_quorum_records(), node_id, log_dir)
        stored = await log.load_bootstrap_records()
        # Treat a file without records, which newer versions of Apache Kafka may write, like a missing file. These are the
        # only defaults: the controller gets its bootstrap records from here, so what it writes and the numbering agree.
        bootstrap = stored or bootstrap_records()
        reader = MetadataRecordReader()
        numbering = await log.find_numbering()
        if numbering is None and is_voter:
            # The leader of an empty log writes these records first. An observer will learn the numbering from the log.
            numbering = _bootstrap_numbering(bootstrap, log_dir)
            if stored is None:
                env.log.warning("bootstrap_checkpoint_missing", log_dir=log_dir.path)
        if numbering is not None:
            reader.numbering = numbering
        driver = cls(
            env,
            config,
            cluster_id=cluster_id,
            replica=ReplicaKey(node_id, directory_id),
            voters=endpoints,
            servers=endpoints or _nameless(bootstrap_servers),
            channels=channels,
            log=log,
            reader=reader,
            bootstrap_records=bootstrap,
        )
        env.log.info(
            "metadata_log_loaded",
            log_start_offset=driver.log_start_offset,
            log_end_offset=driver.log_end_offset,
            epoch=driver.leader_and_epoch.epoch,
            snapshot_offset=driver.high_watermark,
        )
        return driver

    def register(self, listener: MetadataListener) -> None:
        """Adds a listener. The listener gets the newest snapshot, then everything committed since, then each new commit."""
        feed = self._queue.register(listener)
        self._queue.announce_to(feed)
        if self._task_group is not None:
            self._spawn(self._queue.keep_up(feed), f"metadata-listener-{len(self._queue.feeds)}")

    def unregister(self, listener: MetadataListener) -> None:
        """Stops deliveries to a listener. May be called from within any listener."""
        self._queue.unregister(listener)

    async def run(self, task_group: asyncio.TaskGroup) -> None:
        """Leads or follows until `close` or cancellation. Raises LogDirError or QuorumFailure, both fatal."""
        if self._is_closed:
            return
        self._task_group = task_group
        self._stopped = asyncio.get_running_loop().create_future()
        for number, feed in enumerate(self._queue.feeds, start=1):
            self._spawn(self._queue.keep_up(feed), f"metadata-listener-{number}")
        self._spawn(self._make_snapshots(), "metadata-snapshots")
        self._spawn(self._lead_or_follow(), "metadata-quorum")
        try:
            await self._stopped
        finally:
            self._task_group = None
            for task in self._tasks:
                task.cancel()
            self._follower.close()

    async def close(self) -> None:
        """Stops leading or following, ends `run`, and closes the log cleanly. Does not wait for scheduled records to be
        committed; for an orderly shutdown the caller must wait for its commits first."""
        self._is_closed = True
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_result(None)
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        for task in tasks:
            await _ended(task)
        self._resign()
        await self._log.close()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        assert self._task_group is not None
        self._tasks = [task for task in self._tasks if not task.done()]
        self._tasks.append(self._task_group.create_task(self._guarded(work), name=name))

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Makes `run` raise the expected failures of `work`. Any other exception is a bug and ends the daemon."""
        try:
            await work
        except (LogDirError, QuorumFailure) as error:
            self._fail(error)
        except (QuorumViolation, UnreadableBatch, UnsupportedFeatureLevel) as error:
            # Listeners and the snapshot writer raise UnsupportedFeatureLevel if a newer release wrote the log.
            self._fail(QuorumFailure(str(error)))

    def _fail(self, error: Exception) -> None:
        if self._stopped is not None and not self._stopped.done():
            self._stopped.set_exception(error)

    # --- where the log stands ------------------------------------------------------------------------------------
    @property
    def high_watermark(self) -> Offset:
        """The offset before which everything is committed."""
        return self._quorum.high_watermark

    async def ask_for_high_watermark(self) -> Offset:
        """Returns the high watermark that the leader knew at some time after this call.

        A follower waits for the response to a Fetch sent after this call. The leader returns its own high watermark at once.
        """
        asked_ns = self._env.now_ns()
        while not self._quorum.is_leader and self._follower.last_answer_asked_ns < asked_ns:
            await self._follower.next_answer()
        return self._quorum.high_watermark

    def knows_high_watermark_since(self, asked_ns: int) -> bool:
        """Whether `high_watermark` is at least the one that the leader knew at this time."""
        return self._quorum.is_leader or self._follower.last_answer_asked_ns >= asked_ns

    @property
    def log_start_offset(self) -> Offset:
        return self._log.log.log_start_offset

    @property
    def log_end_offset(self) -> Offset:
        """The offset that the next scheduled record will get."""
        return self._log_end_offset

    @property
    def leader_and_epoch(self) -> LeaderAndEpoch:
        return self._quorum.leader_and_epoch

    @property
    def leader_endpoint(self) -> QuorumEndpoint | None:
        """Where requests to the leader go, if this node knows it: from its configuration, or else from an answer."""
        return self._endpoints.for_requests(self._quorum.leader_id)

    @property
    def is_leader(self) -> bool:
        return self._quorum.is_leader

    @property
    def numbering(self) -> Numbering:
        """The cluster's numbering of the reserved directory ids, according to the log read so far."""
        return self._reader.numbering

    def load_bootstrap_records(self) -> list[ApiMessageAndVersion]:
        """Returns the records that the first active controller writes into an empty log."""
        return list(self._bootstrap_records)

    # --- appending -----------------------------------------------------------------------------------------------
    def schedule_append(self, records: Sequence[ApiMessageAndVersion], *, epoch: int, atomic: bool = True) -> Offset:
        """Assigns offsets to the records and queues them for the disk. Returns the offset of the last record.

        Without records, returns the last offset assigned so far. Raises NotLeader, or RecordsTooLarge if atomic records do
        not fit one batch. In both cases nothing is queued.
        """
        if not self._quorum.is_leader or epoch != self._quorum.epoch:
            raise NotLeader(self._quorum.epoch, self._quorum.leader_id)
        for entry in records:
            if isinstance(entry.record, AbortTransactionRecord):
                # The reader has read the beginning of this transaction, and does not read back what this node appends.
                self._reader.end_aborted_transaction()
        batches = encode_batches(
            records,
            base_offset=self._log_end_offset,
            epoch=self._quorum.epoch,
            append_time_ms=self._env.wall_ms(),
            numbering=self._reader.numbering,
            is_atomic=atomic,
        )
        for encoded in batches:
            self._queue_up(encoded)
        return Offset(self._log_end_offset - 1)

    def resign(self, epoch: int) -> None:
        """Stops leading this epoch. Drops batches not yet handed to the log.

        A sole voter is immediately re-elected in the next epoch. Its listeners see both changes.
        """
        if self._quorum.is_leader and epoch == self._quorum.epoch:
            self._env.log.warning("quorum_resigned", epoch=epoch)
            self._resign()

    def _resign(self) -> None:
        self._quorum.resign()
        self._pending.clear()
        self._log_end_offset = self._log.end.offset
        self._queue.drop_from(self._log_end_offset)
        # Notify the listeners now: the main loop may be stuck waiting for an unresponsive disk.
        self._carry_out(self._quorum.take_ready())
        self._work.set()
        self._news.notify()

    def _queue_up(self, encoded: EncodedBatch) -> None:
        self._pending.append(encoded)
        self._queue.push(encoded.batch)
        self._log_end_offset = encoded.batch.next_offset
        self._work.set()

    # --- roles ---------------------------------------------------------------------------------------------------
    async def _lead_or_follow(self) -> None:
        while True:
            await self._perform_ready()
            if self._quorum.can_elect_itself:
                self._quorum.campaign()
            elif self._quorum.is_leader:
                await self._append_group()
            else:
                await self._follower.step()
                self._log_end_offset = self._log.end.offset

    async def _perform_ready(self) -> None:
        """Persists staged elections until none is left, then carries out the other actions of the `Ready`."""
        while (ready := self._quorum.take_ready()).election is not None:
            await self._log.store_election(ready.election, self._quorum.voters)
            self._quorum.election_persisted(self._log_end_offset)
        self._carry_out(ready)

    def _carry_out(self, ready: Ready) -> None:
        if ready.leader_change is not None:
            self._begin_epoch(ready.leader_change)
        if ready.leader_and_epoch is not None:
            leader = ready.leader_and_epoch
            self._env.log.info("quorum_leader_changed", leader_id=leader.leader_id, epoch=leader.epoch)
            progress = self._quorum.progress
            self._queue.announce(leader, None if progress is None else progress.epoch_start_offset)
            self._news.notify()
        if ready.high_watermark is not None:
            self._deliver(ready.high_watermark)

    def _begin_epoch(self, change: LeaderChange) -> None:
        """Schedules the epoch's first batch, a LeaderChange. Until it is committed, no record of an earlier epoch can be
        committed either."""
        message = LeaderChangeMessage(
            leader_id=change.leader_id,
            voters=[LeaderChangeVoter(voter_id=voter) for voter in change.voters],
            granting_voters=[LeaderChangeVoter(voter_id=voter) for voter in change.granting_voters],
        )
        now_ms = self._env.wall_ms()
        offset = self._log_end_offset
        buffer = encode_control_batch([message], timestamp_ms=now_ms, base_offset=offset, leader_epoch=change.epoch)
        self._queue_up(EncodedBatch(buffer, CommittedBatch(offset, offset, change.epoch, now_ms, (), len(buffer))))

    async def _append_group(self) -> None:
        """Waits for pending batches, then appends and syncs all of them together."""
        if not self._pending:
            self._work.clear()
            await self._work.wait()
            return
        group, self._pending = self._pending, []
        append = AwaitedAppend()
        appended = self._log.append_as_leader([encoded.buffer for encoded in group], self._quorum.epoch, append)
        if appended.last_offset != group[-1].batch.last_offset:
            raise QuorumFailure(
                f"the metadata log gave offset {appended.last_offset} to a record that was promised "
                f"{group[-1].batch.last_offset}"
            )
        await append.ended
        # Followers may fetch what has been written, but only what has been fsynced counts towards a commit.
        self._news.notify()
        await self._log.log.flush(group[-1].batch.next_offset)
        self._quorum.log_flushed(group[-1].batch.next_offset)

    def _high_watermark_moved(self) -> None:
        """Wakes the main loop after another voter's Fetch moved the high watermark."""
        self._work.set()

    def _deliver(self, high_watermark: Offset) -> None:
        self._queue.advance(high_watermark)
        self._news.notify()
        if self._is_snapshot_due():
            self._snapshot_due.set()

    # --- snapshots -----------------------------------------------------------------------------------------------
    def _bytes_since_snapshot(self) -> int:
        return self._queue.committed_bytes - self._bytes_at_snapshot

    def _is_snapshot_due(self) -> bool:
        triggers = SnapshotTriggers(
            record_bytes_max=self._config.metadata_log_max_record_bytes_between_snapshots,
            interval_ms=self._config.metadata_log_max_snapshot_interval_ms,
        )
        since_ns = self._env.now_ns() - self._last_snapshot_ns
        return triggers.is_due(record_bytes=self._bytes_since_snapshot(), since_last_ns=since_ns)

    async def _make_snapshots(self) -> None:
        """Writes a snapshot whenever a commit finds that one is due.

        The interval trigger needs no timer, because even an idle quorum commits NoOp records.
        """
        while True:
            await self._snapshot_due.wait()
            self._snapshot_due.clear()
            if self._is_snapshot_due():
                await self.write_snapshot()

    async def write_snapshot(self) -> OffsetAndEpoch | None:
        """Writes a snapshot of what is committed now, then deletes what exceeds retention.

        Returns None if there is nothing new, or if an open metadata transaction leaves no place for a snapshot to end.
        """
        async with self._snapshot_lock:
            counted = self._queue.committed_bytes
            snapshot_id = await self._snapshots.write(self._queue.committed_offset)
            self._bytes_at_snapshot = counted
            self._last_snapshot_ns = self._env.now_ns()
            if snapshot_id is not None:
                # Roll the log, because a later cut can only delete whole segments, and never the newest one.
                await self._log.log.roll()
            # A listener that is catching up may still be reading an old snapshot or the log after it, so delete neither.
            if self._queue.all_live:
                await self._log.delete_surplus()
            return snapshot_id

    # --- handlers of the controller listener ---------------------------------------------------------------------
    async def handle_fetch(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        """Answers a Fetch. Raises ApiError if the metadata directory fails meanwhile or the driver is closed."""
        return await self._answered(self._requests.handle_fetch(context, request))

    async def handle_fetch_snapshot(self, context: RequestContext, request: FetchSnapshotRequest) -> FetchSnapshotResponse:
        """Answers a FetchSnapshot. Raises ApiError if the metadata directory fails meanwhile or the driver is closed."""
        return await self._answered(self._requests.handle_fetch_snapshot(context, request))

    async def _answered(self, answer: Coroutine[Any, Any, Response]) -> Response:
        try:
            return await answer
        except LogDirError as error:
            # The error is fatal, but `run` has to raise it, not this handler. This request only gets an error response.
            self._fail(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR) from error
        except LogClosed:
            raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE) from None

    def handle_describe_quorum(self, context: RequestContext, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        return self._requests.handle_describe_quorum(context, request)


def _bytes_past(log: MetadataLog, snapshot_offset: Offset) -> int:
    """Estimates how many bytes of the log lie beyond the snapshot's end offset."""
    offsets = log.end.offset - log.log.log_start_offset
    return log.log.size_bytes * (log.end.offset - snapshot_offset) // offsets if offsets > 0 else 0


async def _ended(task: "asyncio.Task[None]") -> None:
    """Waits until a cancelled task has ended."""
    try:
        await task
    except asyncio.CancelledError:
        # Ignore the cancellation of the awaited task. But if the caller was cancelled too, raise: its own cancellation must
        # not be lost.
        current = asyncio.current_task()
        if not task.cancelled() or (current is not None and current.cancelling()):
            raise


def _check_sole_voter(quorum_records: QuorumRecords, node_id: BrokerId, log_dir: LogDir) -> None:
    """Raises QuorumFailure if Apache Kafka's controllers left others than this node as voters. They would go on without it,
    under a leader of their own."""
    voters = quorum_records.voters
    if voters is not None and [voter.voter_id for voter in voters.voters] != [node_id]:
        named = ", ".join(str(voter.voter_id) for voter in voters.voters)
        raise QuorumFailure(
            f"{log_dir.path}/{METADATA_LOG_FOLDER} names the voters {named}, and a quorum of one is served: start Apache "
            f"Kafka's controllers once more, and remove all but node {node_id} with kafka-metadata-quorum remove-controller"
        )


def _bootstrap_numbering(bootstrap: Iterable[ApiMessageAndVersion], log_dir: LogDir) -> Numbering | None:
    """Returns the numbering that the bootstrap records select. Raises QuorumFailure if they set no metadata.version."""
    features = [entry.record for entry in bootstrap if isinstance(entry.record, FeatureLevelRecord)]
    if not any(each.name == METADATA_VERSION_FEATURE and each.feature_level > 0 for each in features):
        raise QuorumFailure(f"{log_dir.path}/{BOOTSTRAP_CHECKPOINT} names no {METADATA_VERSION_FEATURE}")
    return numbering_of(features)


def _nameless(servers: Sequence[QuorumServer]) -> tuple[QuorumEndpoint, ...]:
    """Gives servers whose ids are unknown ids that no node has, as Apache Kafka does."""
    return tuple(
        QuorumEndpoint(BrokerId(_FIRST_NAMELESS_ID - number), server.host, server.port)
        for number, server in enumerate(servers)
    )
