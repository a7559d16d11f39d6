"""The transaction coordinator's core under any sequence of requests, timeouts, lost steps and reloads.

Several producers share one transactional id, so that all but the newest are zombies, and another id has producers of its
own. They follow the protocol as real ones do. The partitions are a model: a producer writes into the ones it has added,
and a marker ends what the producer has open there. Every step may be lost before it is committed: then its answer and its
markers never leave the shard, which is loaded again from what is left of the log.

Where transaction.version is 2, a producer may end its transactions with that version and go on with the epochs that it gets.
Then its batches may come late, and its markers twice.

Each transaction must end alike in all of its partitions, and as its producer was told. After each step the shard must equal
one that is loaded from its log. In the end no transaction may be open.
"""

from collections import defaultdict

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.coordinator.core.result import MarkersDue
from broker.coordinator.core.transactions.state import TransactionState
from common.protocol.errors import ErrorCode
from tests.property.profiles import examples
from tests.unit.broker.coordinator.core.transactions.transaction_world import (
    TIMEOUT_MS,
    Producer,
    TransactionWorld,
    loaded_from,
)

PARTITIONS = [("a", 0), ("a", 1), ("b", 0)]
CLIENTS = st.integers(0, 3)
SELDOM = st.sampled_from([False, False, False, True])
BOTH_WAYS = st.booleans()


class Client:
    """A producer. All but the last share the transactional id "t"."""

    def __init__(self, number: int) -> None:
        self.transactional_id = "t" if number < 3 else "u"
        self.producer: Producer | None = None
        # The number of its open transaction, which is nowhere but in this test.
        self.open: int | None = None
        # The outcome that it has asked for and not been told yet.
        self.ending: bool | None = None
        # Whether it uses transaction.version 2, and what it was before its last transaction ended.
        self.bumps = False
        self.former: Producer | None = None


class Transactions(RuleBasedStateMachine):
    """See the module docstring."""

    level = 0

    def __init__(self) -> None:
        super().__init__()
        self.world = TransactionWorld(level=self.level)
        self.clients = [Client(number) for number in range(4)]
        self.opened = 0
        # Per partition: the epoch and the open transaction of each producer id.
        self.partitions: dict[tuple[str, int], dict[int, tuple[int, int | None]]] = {each: {} for each in PARTITIONS}
        # The markers that are under way, and the partitions that still lack them.
        self.sending: list[tuple[MarkersDue, set[tuple[str, int]]]] = []
        # Those that a partition already has and that may come to it once more.
        self.sent: list[tuple[MarkersDue, tuple[str, int]]] = []
        self.outcomes: dict[int, set[bool]] = defaultdict(set)
        self.told: dict[int, bool] = {}

    # --- the shell -----------------------------------------------------------------------------------------------

    def settle(self, *, is_lost: bool, written: int) -> bool:
        """Commits or loses what the last operation wrote. Returns whether its answer is given."""
        if is_lost and len(self.world.log) > written:
            del self.world.log[written:]
            self.crash()
            return False
        self.sending += [(due, set(due.partitions)) for due in self.world.markers_due]
        self.world.markers_due.clear()
        return True

    @rule()
    def crash(self) -> None:
        """A new coordinator loads the log. The markers that were under way are sent by it, if by anybody."""
        self.sending.clear()
        self.world.reload()
        self.settle(is_lost=False, written=0)

    @rule(which=st.integers(0, 20), partition=st.sampled_from(PARTITIONS), is_lost=SELDOM)
    def marker_written(self, which: int, partition: tuple[str, int], is_lost: bool) -> None:
        if not self.sending:
            return
        due, left = self.sending[which % len(self.sending)]
        if partition in left:
            self.write_marker(due, partition)
            left.discard(partition)
        if not left:
            self.sending.remove((due, left))
            written = len(self.world.log)
            self.world.carry_out(self.world.shard.markers_written(self.world.now, due))
            self.settle(is_lost=is_lost, written=written)

    def write_marker(self, due: MarkersDue, partition: tuple[str, int]) -> None:
        epoch, number = self.partitions[partition].get(due.producer_id, (-1, None))
        assert epoch <= due.producer_epoch, "no coordinator sends the marker of a fenced epoch"
        if due.transaction_version >= 2:
            assert number is None or epoch < due.producer_epoch, "the marker has the epoch of what it ends"
            self.sent.append((due, partition))
        if number is not None:
            self.outcomes[number].add(due.is_commit)
        self.partitions[partition][due.producer_id] = (due.producer_epoch, None)

    @precondition(lambda self: self.sent)
    @rule(which=st.integers(0, 50))
    def marker_comes_twice(self, which: int) -> None:
        """A leader refuses the marker if the open transaction has its epoch, or a newer one."""
        due, partition = self.sent[which % len(self.sent)]
        epoch, number = self.partitions[partition].get(due.producer_id, (-1, None))
        if due.producer_epoch > epoch or (due.producer_epoch == epoch and number is None):
            self.write_marker(due, partition)

    # --- the clients ---------------------------------------------------------------------------------------------

    @rule(number=CLIENTS, names_itself=BOTH_WAYS, bumps=BOTH_WAYS, is_lost=SELDOM)
    def begin(self, number: int, names_itself: bool, bumps: bool, is_lost: bool) -> None:
        """A producer starts, or starts over. Its transaction, if it has one, is left to the coordinator."""
        client = self.clients[number]
        named = client.producer if names_itself and client.producer is not None else (-1, -1)
        written = len(self.world.log)
        given = self.world.init(named, transactional_id=client.transactional_id)
        if self.settle(is_lost=is_lost, written=written) and not isinstance(given, ErrorCode):
            client.producer, client.open, client.ending = given, None, None
            client.bumps, client.former = bumps and self.level >= 2, None
        elif given is ErrorCode.PRODUCER_FENCED:
            client.producer = client.open = client.ending = None

    @rule(number=CLIENTS, partition=st.sampled_from(PARTITIONS), is_lost=SELDOM)
    def write(self, number: int, partition: tuple[str, int], is_lost: bool) -> None:
        """A producer adds a partition to its transaction and writes into it."""
        client = self.clients[number]
        if client.producer is None or client.ending is not None:
            return
        written = len(self.world.log)
        version = 2 if client.bumps else 0
        error = self.world.add(client.producer, partition, transactional_id=client.transactional_id, version=version)
        if not self.settle(is_lost=is_lost, written=written):
            return
        if error is ErrorCode.NONE:
            self.write_records(client, partition)
        else:
            self.take_error(client, error)

    def write_records(self, client: Client, partition: tuple[str, int]) -> None:
        assert client.producer is not None
        producer_id, epoch = client.producer
        known_epoch, number = self.partitions[partition].get(producer_id, (-1, None))
        assert known_epoch <= epoch, "a fenced producer has added a partition"
        if client.open is None:
            client.open, self.opened = self.opened, self.opened + 1
        assert number in (None, client.open), "the transaction before this one is still open here"
        self.partitions[partition][producer_id] = (epoch, client.open)

    @rule(number=CLIENTS, is_commit=BOTH_WAYS, is_lost=SELDOM)
    def end(self, number: int, is_commit: bool, is_lost: bool) -> None:
        """A producer ends its transaction, and repeats the request until it is answered."""
        client = self.clients[number]
        if client.producer is None or client.open is None:
            return
        client.ending = is_commit if client.ending is None else client.ending
        if client.bumps:
            self.end_bumping(client, is_lost=is_lost)
            return
        written = len(self.world.log)
        error = self.world.end(client.producer, is_commit=client.ending, transactional_id=client.transactional_id)
        if not self.settle(is_lost=is_lost, written=written):
            return
        if error is ErrorCode.NONE:
            self.told[client.open] = client.ending
            client.open = client.ending = None
        else:
            self.take_error(client, error)

    def end_bumping(self, client: Client, *, is_lost: bool) -> None:
        assert client.producer is not None and client.ending is not None
        written = len(self.world.log)
        given = self.world.end_bumping(client.producer, is_commit=client.ending, transactional_id=client.transactional_id)
        if not self.settle(is_lost=is_lost, written=written):
            return
        if isinstance(given, ErrorCode):
            self.take_error(client, given)
            return
        if client.open is not None:
            self.told[client.open] = client.ending
        client.former, client.producer = client.producer, given
        client.open = client.ending = None

    @rule(number=CLIENTS, is_lost=SELDOM)
    def abort_nothing(self, number: int, is_lost: bool) -> None:
        """A producer without a transaction asks for another epoch."""
        client = self.clients[number]
        if client.producer is not None and client.bumps and client.open is None:
            client.ending = False
            self.end_bumping(client, is_lost=is_lost)

    @rule(number=CLIENTS, partition=st.sampled_from(PARTITIONS))
    def batch_comes_late(self, number: int, partition: tuple[str, int]) -> None:
        """A batch of the former transaction arrives. Either the leader or the coordinator refuses it."""
        client = self.clients[number]
        if client.former is None:
            return
        producer_id, epoch = client.former
        known_epoch, number_open = self.partitions[partition].get(producer_id, (-1, None))
        if known_epoch > epoch:
            return
        assert known_epoch < epoch or number_open is None, "the former transaction is still open here"
        error = self.world.add(client.former, partition, transactional_id=client.transactional_id, version=2)
        assert error is not ErrorCode.NONE

    def take_error(self, client: Client, error: ErrorCode) -> None:
        assert error in (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if error is not ErrorCode.CONCURRENT_TRANSACTIONS:
            client.producer = client.open = client.ending = None

    # --- time ----------------------------------------------------------------------------------------------------

    @rule(ms=st.sampled_from([1, 1_000, TIMEOUT_MS // 2, TIMEOUT_MS]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)
        self.settle(is_lost=False, written=0)

    @rule()
    def week_passes(self) -> None:
        self.world.advance(self.world.settings.transactional_id_expiration_ms)
        self.settle(is_lost=False, written=0)
        self.world.carry_out(*self.world.shard.expire(self.world.now, self.world.shard.expirable()))

    # --- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def a_load_gives_the_same(self) -> None:
        """From the whole log, and from a compacted one."""
        state = {each.transactional_id: each for each in self.world.shard.transactions}
        for log in (self.world.log, dict(self.world.log).items()):
            shard = loaded_from(self.world.settings, log, lambda: self.level)
            assert {each.transactional_id: each for each in shard.transactions} == state

    @invariant()
    def transactions_are_atomic(self) -> None:
        for number, outcomes in self.outcomes.items():
            assert len(outcomes) == 1
            assert self.told.get(number, next(iter(outcomes))) in outcomes

    @invariant()
    def the_prepared_are_under_way(self) -> None:
        """Otherwise they would stay so until the next load."""
        prepared = {each.transactional_id for each in self.world.shard.transactions if each.state.is_prepared}
        assert prepared == {due.transactional_id for due, _ in self.sending}

    def teardown(self) -> None:
        """Whatever happened, timeouts end what is open, and markers reach every partition."""
        for _ in range(2):
            self.world.advance(TIMEOUT_MS)
            self.settle(is_lost=False, written=0)
            for due, left in self.sending:
                for partition in left:
                    self.write_marker(due, partition)
                self.world.carry_out(self.world.shard.markers_written(self.world.now, due))
            self.sending.clear()
        self.transactions_are_atomic()
        open_numbers = {number for each in self.partitions.values() for _, number in each.values() if number is not None}
        assert open_numbers == set()
        assert all(each.state is not TransactionState.ONGOING for each in self.world.shard.transactions)


Transactions.TestCase.settings = settings(examples(60), stateful_step_count=40)
TestTransactions = pytest.mark.slow(Transactions.TestCase)


class BumpingTransactions(Transactions):
    """With transaction.version 2."""

    level = 2


BumpingTransactions.TestCase.settings = settings(examples(60), stateful_step_count=50)
TestBumpingTransactions = pytest.mark.slow(BumpingTransactions.TestCase)
