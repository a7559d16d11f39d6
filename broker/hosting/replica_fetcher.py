"""Replicates the follower partitions of one local directory from one leader broker (shell).

Counterpart of Kafka's ReplicaFetcherThread. There is one fetcher for each pair of leader and *local directory*, with its own
connection, so a hung disk stalls only the replicas on it.

1. Truncation follows KIP-595: each fetch carries the epoch of the last batch. If the logs diverge, the leader answers with
   the diverging epoch; the follower truncates its log there and fetches again.
2. A fetch offset promises that everything below it is written here. So a partition is fetched again only once its last
   append has completed.
3. When a partition is added, a poll without this partition may be waiting at the leader. The next request of the session is
   sent at once then, and the leader answers both. Otherwise the new leader's first acks=all produce would have to wait until
   the poll ends. (Apache Kafka's brokers do not look at the second request before the poll has ended.)
4. A partition that waits for the follower's replication quota (KIP-73) is left out of the fetch, like one that backs off.
5. A partition that catches up is left out, too, while many rolled segments of its log await their syncs
   (`Log.outruns_syncs`). Otherwise a log that is created or deleted in the directory would wait for all of these syncs. A
   member of the ISR is never left out for that, and neither is a follower that has reached the leader's high watermark:
   clients wait for these.
6. A fetch costs what has changed. Only the partitions in `_changed` are looked at before a request
   (`broker/core/fetcher_session.py`).
7. Producers wait for the followers' rounds, so a round has no task and no future: the answer is taken in the call that
   brings it, and the end of the last append sends the next request. `run` sleeps meanwhile, and goes on when there is
   nothing to fetch or the leader does not answer.
8. A task beside `run` cuts or empties logs. Their partitions are left out of the fetches until that has ended. Otherwise the
   other partitions would wait for it, and it may wait in turn for file descriptors while the process has none left.
9. While the directory is suspected of hanging, the fetcher fetches nothing and notifies the leader instead
   (`broker/hosting/halt_notices.py`). When the disk responds again, a new session names all partitions. It waits until the
   leader has answered every notice: if the leader handled a notice last, it would take the follower for halted from then on.
   The notices also name the replicas whose logs are being created in the directory (`expect`).
10. The leader is also notified of a partition whose swap is overdue (rule 7 in `broker/hosting/moves.py`). No fetcher asks
   for a partition before the notices of its leader epoch are answered, so this fetcher goes on until they are.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from broker.core.fetcher_session import FetcherSession, SessionRequest
from broker.core.partition_replica import Role
from broker.core.replication_quota import ReplicationQuota
from broker.hosting.follower_truncation import FollowerTruncation
from broker.hosting.halt_notices import NO_OFFSET, HaltNotices, Notice
from broker.hosting.leader_connection import PARTITIONS_ADDED_MAX, FetcherSettings, LeaderConnection
from broker.hosting.partition import Partition
from broker.hosting.traffic import Traffic
from broker.hosting.upkeep import Upkeep
from common.environment.interface import Environment, LogDirError
from common.ids import LeaderEpoch, Offset, TopicId, TopicIdPartition
from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode, error_name
from common.protocol.messages.fetch import (
    FetchPartition,
    FetchResponse,
    PartitionData,
)
from common.protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
)
from common.records.batch import BatchError, BatchHeader, split_intact_batches
from common.storage.errors import LogClosed, UnexpectedOffset
from common.time_units import NS_PER_MS

_FIRST_BACKOFF_NS = 20 * NS_PER_MS
# Partitions are added in bursts. One request overtakes the poll for all that are added within this time.
_OVERTAKING_DELAY_NS = 5 * NS_PER_MS
# After these errors the session is over, but nothing is wrong with the leader.
_SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


@dataclass(slots=True, eq=False)
class _Followed:
    """A partition that this fetcher replicates."""

    partition: Partition
    leader_epoch: LeaderEpoch
    not_before_ns: int = 0
    backoff_ns: int = _FIRST_BACKOFF_NS
    # Why it was delayed last, so that retries do not log it again. None once the leader has sent records or has none.
    delay_reason: str | None = None
    is_appending: bool = False
    # Whether its log is being cut or emptied, or is about to be (rule 8).
    is_truncating: bool = False
    is_awaiting_syncs: bool = False


class ReplicaFetcher:
    """See the module docstring. Partitions may be added and removed at any time."""

    def __init__(
        self,
        env: Environment,
        leader: LeaderConnection,
        *,
        settings: FetcherSettings,
        quota: ReplicationQuota,
        traffic: Traffic,
        task_group: asyncio.TaskGroup,
        upkeep: Upkeep,
    ) -> None:
        self._env = env
        self._task_group = task_group
        self._leader = leader
        self._settings = settings
        self._quota = quota
        self._traffic = traffic
        self._truncation = FollowerTruncation(env, upkeep)
        self._followed: dict[TopicIdPartition, _Followed] = {}
        # The replicas whose logs are being created, with the leader epochs. Invariant: none of them is followed.
        self._expected: dict[TopicIdPartition, LeaderEpoch] = {}
        self._session = FetcherSession()
        # The partitions, followed or not, for which the session may have to ask for something else.
        self._changed: dict[TopicIdPartition, None] = {}
        # Whether there were too many of them for the last request, so that the next one must come soon.
        self._has_more_to_add = False
        # The followed partitions that back off, and those whose topic's configuration throttles this replica.
        self._delayed: dict[TopicIdPartition, None] = {}
        self._throttled: dict[TopicIdPartition, None] = {}
        # The requests without an answer, by number: a poll, and perhaps one that overtakes it.
        self._unanswered: dict[int, SessionRequest] = {}
        # The answers that wait for the appends of the answer before them, and how many of these appends are under way.
        self._answers: deque[tuple[SessionRequest, FetchResponse | ChannelError]] = deque()
        self._appends_left = 0
        # What `run` waits for. The result is "" if there is nothing to fetch, otherwise the reason why the leader has not
        # answered. None while `run` itself is at work.
        self._rounds_end: asyncio.Future[str] | None = None
        self._cancel_overtaking: Callable[[], None] | None = None
        # The truncations that wait for their turn, and whether a task carries them out (rule 8).
        self._truncations: deque[tuple[_Followed, Callable[[], Awaitable[None]]]] = deque()
        self._runs_truncations = False
        self._is_stopped = False
        # Whether the directory is suspected (rule 9).
        self._is_halted = False
        self._wake = asyncio.Event()
        self._notices = HaltNotices(env, leader, notice_of=self._notice_of, on_answered=self._wake.set)
        self._leader_backoff_ns = _FIRST_BACKOFF_NS
        # The failures that were logged, so that retries do not repeat them. Empty when the leader has answered.
        self._failures: set[str] = set()

    def __len__(self) -> int:
        return len(self._followed) + len(self._expected)

    # --- partitions ----------------------------------------------------------------------------------------------

    @property
    def awaits_answers(self) -> bool:
        """Whether a notice is unanswered. Until it is answered, no other fetcher asks for its partitions (rule 10)."""
        return self._notices.unanswered > 0

    def expect(self, key: TopicIdPartition, leader_epoch: LeaderEpoch) -> None:
        """Notes that the log of a replica is being created, which `add` or `forget` ends."""
        is_known = self._expected.get(key) == leader_epoch
        self._expected[key] = leader_epoch
        if self._is_halted and not is_known:
            self._notices.notify([key])

    def forget(self, key: TopicIdPartition) -> None:
        """Ends `expect`."""
        self._expected.pop(key, None)

    def add(self, partition: Partition) -> None:
        """Starts following the leader in the partition's current leader epoch."""
        self._expected.pop(partition.key, None)
        known = self._followed.get(partition.key)
        if known is not None and known.partition is partition and known.leader_epoch == partition.replica.leader_epoch:
            if known.is_awaiting_syncs:
                # It may have joined the ISR (rule 5).
                self._partition_changed(partition.key)
            return
        self._followed[partition.key] = _Followed(partition, partition.replica.leader_epoch)
        # What the session asks for in this partition belongs to the previous leader epoch.
        self._session.forget(partition.key)
        self._delayed.pop(partition.key, None)
        # An append begun by a previous fetcher may end while this fetcher polls. The partition is not ready until that
        # append has ended.
        partition.on_fetch_changed = lambda: self._partition_changed(partition.key)
        self._partition_changed(partition.key)
        if self._is_halted:
            self._notices.notify([partition.key])

    def remove(self, partition: Partition) -> None:
        """Stops following. A response in flight has no effect on this partition any more."""
        self._expected.pop(partition.key, None)
        known = self._followed.get(partition.key)
        if known is not None and known.partition is partition:
            del self._followed[partition.key]
            self._changed[partition.key] = None
            partition.on_fetch_changed = None

    def halt(self) -> None:
        """Fetches nothing until `resume` (rule 9)."""
        self._is_halted = True
        # The answers to what is under way have no effect any more.
        self._session.failed()
        self._notices.notify([*self._followed, *self._expected])

    def resume(self) -> None:
        """Goes on after `halt`."""
        self._is_halted = False
        self._session.failed()
        self._changed.update(dict.fromkeys(self._followed))
        self._end_rounds("")
        self._wake.set()

    def stop(self) -> None:
        """Ends `run` at its next step. We never cancel the task, because a truncation that has begun must complete."""
        self._is_stopped = True
        for followed in self._followed.values():
            followed.partition.on_fetch_changed = None
        self._followed.clear()
        self._expected.clear()
        if self._cancel_overtaking is not None:
            self._cancel_overtaking()
        self._wake.set()
        self._end_rounds("")
        self._leader.close()

    def _partition_changed(self, key: TopicIdPartition) -> None:
        """Notes that something else may have to be asked for in the partition. If the session does not ask for it yet, that
        cannot wait until the poll ends (rule 3)."""
        self._changed[key] = None
        self._wake.set()
        followed = self._followed.get(key)
        if followed is not None and followed.partition.is_swap_overdue:
            # The session must name it again after the notice.
            self._session.forget(key)
            self._notices.notify([key])
            return
        if self._is_polling and key not in self._session:
            self._overtake_soon()

    def _overtake_soon(self) -> None:
        if self._cancel_overtaking is None:
            self._cancel_overtaking = self._env.call_at(self._env.now_ns() + _OVERTAKING_DELAY_NS, self._overtake)

    def _overtake(self) -> None:
        """Sends the next request of the session while the one before waits at the leader."""
        self._cancel_overtaking = None
        if self._is_polling and len(self._unanswered) == 1 and self._session.is_established:
            self._look_at_changed()
            if self._session.has_changes and len(self._session):
                self._fetch(self._session.next_request())

    @property
    def _is_polling(self) -> bool:
        """Whether there is nothing to do until the leader answers."""
        return bool(self._unanswered) and not self._appends_left

    # --- the loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Fetches until stopped."""
        while not self._is_stopped:
            self._wake.clear()
            if self._is_halted or self._notices.unanswered:
                await self._wake.wait()
                continue
            self._look_at_changed()
            if not len(self._session):
                await self._wait_until_ready()
                continue
            self._rounds_end = asyncio.get_running_loop().create_future()
            self._fetch(self._session.next_request())
            try:
                failure = await self._rounds_end
            finally:
                # If the daemon ends, this task is cancelled, and the rounds with it.
                self._end_rounds("")
            if failure:
                await self._leader_failed(failure)

    def _answered(self, request: SessionRequest, answer: FetchResponse | ChannelError) -> None:
        if self._unanswered.pop(request.number, None) is None:
            # The rounds have ended since.
            return
        self._answers.append((request, answer))
        self._go_on()

    def _go_on(self) -> None:
        """Takes the answers that have come. Sends the next request when the last append has ended."""
        while self._answers and not self._appends_left:
            self._take(*self._answers.popleft())
        if self._rounds_end is None or self._appends_left or self._is_halted:
            return
        if self._unanswered:
            if self._changed:
                # What changed since this request was sent waits for the next one.
                self._overtake_soon()
            return
        self._look_at_changed()
        if len(self._session):
            self._fetch(self._session.next_request())
        else:
            self._end_rounds("")

    def _end_rounds(self, failure: str) -> None:
        """Wakes `run`. What is still unanswered has no effect any more."""
        self._unanswered.clear()
        self._answers.clear()
        ended, self._rounds_end = self._rounds_end, None
        if ended is not None and not ended.done():
            ended.set_result(failure)

    def _look_at_changed(self) -> None:
        """Brings the session up to date with the partitions. Those that are too many for one request stay in `_changed`."""
        added = 0
        now_ns = self._env.now_ns()
        self._changed.update(self._delayed)
        self._changed.update(self._throttled)
        changed, self._changed = self._changed, {}
        for key in changed:
            is_new = key not in self._session
            if is_new and added == PARTITIONS_ADDED_MAX:
                self._changed[key] = None
                continue
            followed = self._followed.get(key)
            self._throttled.pop(key, None)
            self._delayed.pop(key, None)
            if followed is None:
                self._session.forget(key)
                continue
            if followed.partition.replica.is_follower_throttled:
                self._throttled[key] = None
            if followed.not_before_ns > now_ns:
                self._delayed[key] = None
            if self._outruns_syncs(followed):
                self._await_syncs(followed)
                self._session.forget(key)
            elif self._is_ready(followed, now_ns):
                self._session.ask(key, self._wanted(followed, bytes_max=self._bytes_max(followed, now_ns)))
                added += is_new
            else:
                self._session.forget(key)
        self._has_more_to_add = bool(self._changed)

    def _is_ready(self, followed: _Followed, now_ns: int) -> bool:
        partition = followed.partition
        return (
            followed.not_before_ns <= now_ns
            and not (partition.replica.is_paced and self._quota.allowed_bytes(now_ns) == 0)
            and not followed.is_appending
            and not followed.is_truncating
            and not partition.is_restructuring
            and followed.leader_epoch not in partition.unanswered_notices
            and partition.log.written_offset == partition.log.log_end_offset
        )

    def _outruns_syncs(self, followed: _Followed) -> bool:
        return followed.partition.replica.is_catching_up and followed.partition.log.outruns_syncs

    def _await_syncs(self, followed: _Followed) -> None:
        if not followed.is_awaiting_syncs:
            followed.is_awaiting_syncs = True
            self._task_group.create_task(self._look_again_after_syncs(followed))

    async def _look_again_after_syncs(self, followed: _Followed) -> None:
        await followed.partition.log.wait_for_rolled()
        followed.is_awaiting_syncs = False
        if self._followed.get(followed.partition.key) is followed:
            self._partition_changed(followed.partition.key)

    def _bytes_max(self, followed: _Followed, now_ns: int) -> int:
        bytes_max = self._settings.partition_max_bytes
        return min(bytes_max, self._quota.allowed_bytes(now_ns)) if followed.partition.replica.is_paced else bytes_max

    def _notice_of(self, key: TopicIdPartition) -> Notice | None:
        followed = self._followed.get(key)
        if followed is not None:
            partition = followed.partition
            if self._is_follower(followed) and (self._is_halted or partition.is_swap_overdue):
                return Notice(key, self._halted_at(followed), partition)
        elif self._is_halted and key in self._expected:
            return Notice(key, _without_position(key, self._expected[key]), None)
        return None

    def _halted_at(self, followed: _Followed) -> FetchPartition:
        partition = followed.partition
        if followed.is_truncating or partition.is_restructuring:
            return _without_position(partition.key, followed.leader_epoch)
        return self._wanted(followed, bytes_max=0)

    def _wanted(self, followed: _Followed, *, bytes_max: int) -> FetchPartition:
        partition, log = followed.partition, followed.partition.log
        return FetchPartition(
            partition=partition.index,
            current_leader_epoch=followed.leader_epoch,
            fetch_offset=log.written_offset,
            last_fetched_epoch=log.leader_epochs.latest_epoch,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=bytes_max,
        )

    async def _wait_until_ready(self) -> None:
        times = self._due_times()
        cancel = self._env.call_at(min(times), self._wake.set) if times else None
        try:
            await self._wake.wait()
        finally:
            if cancel is not None:
                cancel()

    def _due_times(self) -> list[int]:
        """Returns when partitions that back off or wait for the quota may be fetched again."""
        now_ns = self._env.now_ns()
        followed = (self._followed.get(key) for key in self._delayed)
        times = [each.not_before_ns for each in followed if each is not None and each.not_before_ns > now_ns]
        if self._throttled and self._quota.allowed_bytes(now_ns) == 0 and self._is_any_paced():
            times.append(self._quota.resume_ns(now_ns))
        return times

    def _is_any_paced(self) -> bool:
        throttled = (self._followed.get(key) for key in self._throttled)
        return any(each is not None and each.partition.replica.is_paced for each in throttled)

    def _fetch(self, request: SessionRequest) -> None:
        self._unanswered[request.number] = request
        self._leader.post_fetch(request, max_wait_ms=self._wait_ms(request), on_answer=partial(self._answered, request))

    def _wait_ms(self, request: SessionRequest) -> int:
        """Returns how long the leader may hold the poll: at most until the first partition left out is due again."""
        if request.begins_session and not self._session.is_refused:
            # Nothing can overtake this request, because only its answer has the session's id.
            return 0
        if self._has_more_to_add:
            return 0
        if not self._delayed and not self._throttled:
            return self._settings.wait_max_ms
        now_ns = self._env.now_ns()
        waits = [(due_ns - now_ns) // NS_PER_MS + 1 for due_ns in self._due_times()]
        return min([self._settings.wait_max_ms, *waits])

    def _take(self, request: SessionRequest, answer: FetchResponse | ChannelError) -> None:
        """Handles the answer to a request."""
        if isinstance(answer, ChannelError):
            self._session.failed()
            self._end_rounds(str(answer))
        elif not request.begins_session and not self._session.is_established:
            # The session ended with the answer before.
            return
        elif self._session.answered(request, answer):
            self._leader_backoff_ns = _FIRST_BACKOFF_NS
            self._failures.clear()
            self._process(request, answer)
        elif answer.error_code not in _SESSION_ERRORS:
            self._end_rounds(error_name(answer.error_code))

    async def _leader_failed(self, reason: str) -> None:
        self._leader.close()
        if reason not in self._failures:
            self._failures.add(reason)
            self._env.log.info("replica_fetch_failed", leader=self._leader.leader_id, reason=reason)
        await self._env.sleep_until(self._env.now_ns() + self._leader_backoff_ns)
        self._leader_backoff_ns = min(2 * self._leader_backoff_ns, max(self._settings.backoff_max_ns, _FIRST_BACKOFF_NS))

    # --- the response --------------------------------------------------------------------------------------------

    def _process(self, request: SessionRequest, response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                key = TopicIdPartition(TopicId(topic.topic_id), data.partition_index)
                # Unless the session learns something else of the partition, the leader repeats the answer.
                self._changed[key] = None
                followed = self._followed.get(key)
                if followed is None or not self._is_answer(request, followed):
                    continue
                try:
                    self._process_one(followed, data)
                except (LogDirError, LogClosed, BatchError, UnexpectedOffset) as error:
                    # Go on with the other partitions. If the directory failed, the failure channel removes its partitions.
                    self._back_off(followed, str(error))

    def _is_answer(self, request: SessionRequest, followed: _Followed) -> bool:
        """Whether the answer to this request belongs to what the partition lacks now."""
        wanted = self._session.asked(followed.partition.key, request)
        return (
            wanted is not None
            and wanted.fetch_offset == followed.partition.log.log_end_offset
            and not followed.is_truncating
            and self._is_current(followed)
        )

    def _is_current(self, followed: _Followed) -> bool:
        return self._is_follower(followed) and not followed.partition.is_restructuring

    def _is_follower(self, followed: _Followed) -> bool:
        """Whether the partition still follows this leader in this leader epoch."""
        partition = followed.partition
        return (
            self._followed.get(partition.key) is followed
            and partition.gone is ErrorCode.NONE
            and partition.replica.role is Role.FOLLOWER
            and partition.replica.leader_epoch == followed.leader_epoch
        )

    def _process_one(self, followed: _Followed, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._truncate_aside(followed, lambda: self._handle_out_of_range(followed))
        elif data.error_code != ErrorCode.NONE:
            self._back_off(followed, error_name(data.error_code))
        elif data.diverging_epoch.epoch >= 0 or data.diverging_epoch.end_offset >= 0:
            self._truncate_aside(followed, lambda: self._truncate_to_divergence(followed, data))
        else:
            batches, view = _intact_batches(data.records)
            if batches and followed.partition.log.starts_within(batches[0][0]):
                self._truncate_aside(followed, lambda: self._restart_with(followed, data, batches, view))
            else:
                self._append(followed, data, batches, view)
                # Not before: a damaged batch comes with every answer, and each one may be of a megabyte.
                followed.backoff_ns = _FIRST_BACKOFF_NS
                followed.delay_reason = None

    def _append(
        self, followed: _Followed, data: PartitionData, batches: list[tuple[BatchHeader, memoryview]], view: memoryview
    ) -> None:
        partition = followed.partition
        if not batches:
            self._follow_leader_marks(followed, data)
            return
        self._traffic.replicated(partition.topic, size=len(view))
        if partition.replica.is_follower_throttled:
            self._quota.count(len(view), self._env.now_ns(), is_paced=partition.replica.is_paced)

        def appended(is_written: bool) -> None:
            followed.is_appending = False
            self._appends_left -= 1
            if is_written and self._is_current(followed):
                self._follow_leader_marks(followed, data)
            # All appends of a directory go through one writer, so they complete together. The next fetch confirms them all.
            if not self._appends_left:
                self._go_on()

        partition.append_as_follower(batches, view, on_done=appended)
        followed.is_appending = True
        self._appends_left += 1

    def _follow_leader_marks(self, followed: _Followed, data: PartitionData) -> None:
        partition = followed.partition
        partition.leader_high_watermark(Offset(data.high_watermark))
        if data.log_start_offset > partition.log.log_start_offset:
            # The next fetch reports the new start. The segments below it go with the next check of retention.
            partition.raise_log_start(Offset(data.log_start_offset))

    def _back_off(self, followed: _Followed, reason: str) -> None:
        if reason != followed.delay_reason:
            followed.delay_reason = reason
            name = followed.partition.name
            self._env.log.info("replica_fetch_delayed", partition=name, leader=self._leader.leader_id, reason=reason)
        followed.not_before_ns = self._env.now_ns() + followed.backoff_ns
        self._changed[followed.partition.key] = None
        followed.backoff_ns = min(2 * followed.backoff_ns, max(self._settings.backoff_max_ns, _FIRST_BACKOFF_NS))

    # --- truncation ----------------------------------------------------------------------------------------------

    def _truncate_aside(self, followed: _Followed, truncate: Callable[[], Awaitable[None]]) -> None:
        """Leaves the partition out of the fetches until `truncate` has ended (rule 8)."""
        followed.is_truncating = True
        self._truncations.append((followed, truncate))
        if not self._runs_truncations:
            self._runs_truncations = True
            self._task_group.create_task(self._run_truncations())

    async def _run_truncations(self) -> None:
        while self._truncations:
            followed, truncate = self._truncations.popleft()
            if self._is_current(followed):
                try:
                    await truncate()
                except (LogDirError, LogClosed, BatchError, UnexpectedOffset) as error:
                    # If the directory failed, the failure channel removes its partitions.
                    self._back_off(followed, str(error))
            followed.is_truncating = False
            if self._followed.get(followed.partition.key) is followed:
                self._partition_changed(followed.partition.key)
        self._runs_truncations = False

    async def _truncate_to_divergence(self, followed: _Followed, data: PartitionData) -> None:
        epoch, end_offset = LeaderEpoch(data.diverging_epoch.epoch), Offset(data.diverging_epoch.end_offset)
        is_shorter = await self._truncation.truncate_to_divergence(
            followed.partition, epoch, end_offset, leader_start=Offset(data.log_start_offset)
        )
        if not is_shorter:
            # The next fetch would be identical. Something is wrong, and retrying without a pause would not fix it.
            self._back_off(followed, f"the logs part at epoch {epoch}, offset {end_offset}, and nothing is left to cut")

    async def _restart_with(
        self, followed: _Followed, data: PartitionData, batches: list[tuple[BatchHeader, memoryview]], view: memoryview
    ) -> None:
        """Empties the log, which then starts with these batches. The leader's log starts within the first one, so it would
        not send that one again for an offset below its start."""
        await self._truncation.restart(followed.partition, Offset(batches[0][0].base_offset))
        if self._is_current(followed):
            self._append(followed, data, batches, view)

    async def _handle_out_of_range(self, followed: _Followed) -> None:
        """Handles an offset that the leader does not have: the leader's log ends before it or starts after it."""
        partition = followed.partition
        leader_end = await self._leader.list_offset(partition, LATEST)
        if leader_end is None or not self._is_current(followed):
            return self._back_off(followed, "the leader's end is not known")
        leader_start = await self._leader.list_offset(partition, EARLIEST)
        if leader_start is None or not self._is_current(followed):
            return self._back_off(followed, "the leader's start is not known")
        if leader_end < partition.log.log_end_offset:
            return await self._truncation.truncate(partition, leader_end, leader_start=leader_start)
        if leader_start > partition.log.log_end_offset:
            return await self._truncation.restart(partition, leader_start)
        return self._back_off(followed, ErrorCode.OFFSET_OUT_OF_RANGE.name)


def _without_position(key: TopicIdPartition, leader_epoch: LeaderEpoch) -> FetchPartition:
    return FetchPartition(partition=key.partition, current_leader_epoch=leader_epoch, fetch_offset=NO_OFFSET)


def _intact_batches(records: object) -> tuple[list[tuple[BatchHeader, memoryview]], memoryview]:
    """Returns the whole batches at the start of the leader's data, with verified checksums, and their memory."""
    if not isinstance(records, bytes | bytearray | memoryview):
        return [], memoryview(b"")
    batches = split_intact_batches(records)
    return batches, memoryview(records)[: sum([header.size for header, _ in batches])]
