"""Answers Fetch for consumers and followers (shell).

Counterpart of KafkaApis.handleFetchRequest, ReplicaManager.fetchMessages, DelayedFetch and FetchManager. A follower's
request confirms what the follower has written. A follower reads up to the written end of the log, a consumer up to the high
watermark. With isolation.level=read_committed, a consumer reads up to the last stable offset, and also gets the aborted
transactions of what it reads, to skip their records. Records are sent as regions of the log's files; a read here only looks
up where they are.

1. A fetch that has waited must check everything again that changed, because the leader may have changed meanwhile. But it
   must not confirm the follower's offset again: that confirmation would carry the time after the wait, not that of the
   request.
2. A fetch without a session is one whose partitions are all new. So both kinds take the same way.
3. The next request of a session ends the wait of the one before. A follower uses that to add a partition while its fetch
   waits.
"""

import asyncio
from collections.abc import Callable

from broker.core.fetch_session_cache import FINAL_EPOCH, INITIAL_EPOCH
from broker.core.partition_replica import SessionClock
from broker.core.replica_selector import ReplicaSelector
from broker.hosting.purgatory import FetchWait, WatchedPartitions
from broker.hosting.replicas import Replicas
from broker.requests.fetch_session import FetchSession, FetchSessions
from broker.requests.fetched_partitions import TOPIC_ID_FIRST_VERSION, Fetch, FetchedPartition, fetching_replica
from common.environment.interface import Environment
from common.light_tasks import LightTask, LightTasks
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.fetch import FetchRequest, FetchResponse
from common.slices import ELEMENTS_PER_SLICE, pause
from common.time_units import NS_PER_MS

_SESSION_ID_MAX = 0x7FFF_FFFF
# A limit for max_wait_ms; answering early is always allowed. Without the limit, the fetch of a client that asked to wait for
# weeks and then disappeared would stay here for weeks.
_WAIT_MAX_MS = 60_000


class FetchHandler:
    """Handles Fetch; the request server calls `handle`."""

    def __init__(
        self,
        env: Environment,
        replicas: Replicas,
        *,
        response_bytes_max: int,
        sessions: FetchSessions,
        light_tasks: LightTasks,
        selector: ReplicaSelector | None = None,
    ) -> None:
        """Fetches that wait run as `light_tasks`. Without `selector`, no consumer is sent to a follower."""
        self._env = env
        self._replicas = replicas
        self._response_bytes_max = response_bytes_max
        self._selector = selector
        self._sessions = sessions
        self._light_tasks = light_tasks

    def handle(self, context: RequestContext, request: FetchRequest) -> FetchResponse | LightTask[FetchResponse]:
        """Answers at once if there are enough bytes or something else to report; otherwise waits and reads again. If nothing
        has to be awaited, returns the response itself."""
        return self._light_tasks.start(self._handle(context, request))

    async def _handle(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.remove(request.session_id)
            session = await self._begin_session(context, request) if request.session_epoch == INITIAL_EPOCH else None
            if session is None:
                return await self._handle_without_session(context, request)
            async with session.lock:
                return await self._handle_in_session(context, request, session, names_all=True)
        return await self._handle_later_request(context, request)

    async def _handle_later_request(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        session = self._sessions.find(request.session_id)
        if session is None:
            return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        by_id = context.api_version >= TOPIC_ID_FIRST_VERSION
        error = session.advance(request.session_epoch, by_id=by_id, now_ns=self._env.now_ns())
        if error is not ErrorCode.NONE:
            return FetchResponse(error_code=error)
        self._sessions.touch(session)
        if len(session) > ELEMENTS_PER_SLICE and not session.is_follower:
            # As for a request that names so many partitions (`served_connection`).
            context.memory.expect_response(max(0, request.max_bytes))
        session.queued += 1
        session.watched.end_wait()
        async with session.lock:
            session.queued -= 1
            if session.is_closed:
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            await session.take_over(request, asked_as=self._asked_as(context, request))
            self._sessions.note_size(session, self._env.now_ns())
            if session.is_closed:
                # Nothing is left to the garbage collector here either.
                session.watched.changed.clear()
                return FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if not len(session):
                self._sessions.remove(session.session_id)
                return FetchResponse()
            return await self._handle_in_session(context, request, session, names_all=False)

    async def _begin_session(self, context: RequestContext, request: FetchRequest) -> FetchSession | None:
        """Returns a new session, or None if there is no room for it or nothing to fetch."""
        session_id = 0
        while not session_id or self._sessions.find(session_id) is not None:
            session_id = self._env.rng.randint(1, _SESSION_ID_MAX)
        # The session must not refer to the context, which keeps the frame of the request and its answer in memory.
        client_gone = context.client_gone

        def remove(_: object) -> None:
            self._sessions.remove(session_id)

        now_ns = self._env.now_ns()
        session = FetchSession(
            session_id,
            request,
            by_id=context.api_version >= TOPIC_ID_FIRST_VERSION,
            asked_as=self._asked_as(context, request),
            now_ns=now_ns,
            # Some clients begin a new session with every fetch, on a connection that stays for months.
            on_closed=lambda: client_gone.remove_done_callback(remove),
        )
        await session.want(request.topics)
        is_taken = self._sessions.find(session_id) is not None
        if client_gone.done() or is_taken or not len(session) or not self._sessions.add(session, now_ns):
            # As after a fetch without a session, nothing is left to the garbage collector.
            session.watched.changed.clear()
            return None
        # After a lost connection every client begins a new session. If it named the lost one, so much the better, but it may
        # never come back.
        client_gone.add_done_callback(remove)
        return session

    def _asked_as(self, context: RequestContext, request: FetchRequest) -> tuple[object, ...]:
        """Returns what the answers depend on apart from the partitions (`FetchSession.take_over`)."""
        replica_id, replica_epoch = fetching_replica(request)
        registration = self._replicas.state.brokers.get(replica_id)
        registered_epoch = None if registration is None else registration.epoch
        asked_as = (context.api_version, replica_id, replica_epoch, registered_epoch, request.isolation_level)
        if self._selector is not None and request.rack_id and replica_id < 0:
            # The best replica to read from may be another one at any time, so nothing counts as unchanged.
            return (*asked_as, self._env.now_ns(), request.session_epoch)
        return (*asked_as, request.rack_id)

    async def _handle_without_session(self, context: RequestContext, request: FetchRequest) -> FetchResponse:
        watched: WatchedPartitions[FetchedPartition] = WatchedPartitions()
        items: list[FetchedPartition] = []
        for topic in request.topics:
            for wanted in topic.partitions:
                items.append(FetchedPartition(watched, topic.topic, topic.topic_id, wanted))
                if len(items) % ELEMENTS_PER_SLICE == 0:
                    await pause()
        watched.changed.update(dict.fromkeys(items))
        try:
            fetch = self._fetch(context, request, watched, clock=None, names_all=True)
            return await self._answer(fetch, request, may_wait=lambda: bool(items))
        finally:
            for item in items:
                item.unwatch()
            # A partition and the set of the changed ones refer to each other. If they were left to the garbage collector, it
            # would stop the event loop for milliseconds, several times a second.
            watched.changed.clear()

    async def _handle_in_session(
        self, context: RequestContext, request: FetchRequest, session: FetchSession, *, names_all: bool
    ) -> FetchResponse:
        clock = session.clock if session.is_follower else None
        fetch = self._fetch(context, request, session.watched, clock=clock, names_all=names_all)
        response = await self._answer(
            fetch,
            request,
            may_wait=lambda: not session.queued and not session.is_closed,
        )
        if session.is_closed:
            fetch.stop_watching()
        else:
            response.session_id = session.session_id
        return response

    def _fetch(
        self,
        context: RequestContext,
        request: FetchRequest,
        watched: WatchedPartitions[FetchedPartition],
        *,
        clock: SessionClock | None,
        names_all: bool,
    ) -> Fetch:
        return Fetch(
            self._replicas,
            context,
            request,
            watched,
            clock=clock,
            names_all=names_all,
            response_bytes_max=self._response_bytes_max,
            selector=self._selector,
        )

    async def _answer(self, fetch: Fetch, request: FetchRequest, *, may_wait: Callable[[], bool]) -> FetchResponse:
        now_ns = self._env.now_ns()
        deadline_ns = now_ns + min(max(request.max_wait_ms, 0), _WAIT_MAX_MS) * NS_PER_MS
        await fetch.look_up(confirms=True)
        fetch.note_time(now_ns)
        await fetch.read(now_ns)
        if fetch.is_follower and not fetch.is_answered():
            # The consumers and producers that this fetch has released have waited longest, so they are answered first.
            await asyncio.sleep(0)
        while not fetch.is_answered() and may_wait() and self._env.now_ns() < deadline_ns:
            # What changed while other partitions were read would not end a wait any more.
            has_waited = not fetch.watched.changed
            if has_waited:
                await self._wait(fetch, deadline_ns)
                fetch.look_again()
            await fetch.look_up(confirms=False)
            await fetch.read(self._env.now_ns())
            if has_waited:
                break
        return await fetch.response(self._env.now_ns())

    async def _wait(self, fetch: Fetch, deadline_ns: int) -> None:
        fetch.watched.wait = FetchWait(
            self._env,
            min_bytes=fetch.missing_bytes(),
            deadline_ns=min([deadline_ns, *fetch.resume_times(self._env.now_ns())]),
        )
        fetch.note_wait()
        try:
            await fetch.watched.wait.until_over()
        finally:
            fetch.watched.wait = None
