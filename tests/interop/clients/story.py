"""The story that every client is told: a topic, every compression type, a group that changes, and two faults in the middle.

The stories of all clients are played at the same time on one cluster, each in a thread. Before a fault every story waits
until all have come so far, because the fault hits them all; while it happens, every story's producer is writing.
"""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from tests.interop.clients.interface import SECONDS_MAX, Client, Record
from tests.interop.clients.stored import stored_values
from tests.interop.group_members import Member

PARTITIONS = 6
RECORDS_EACH = 30
# How long a producer writes while a fault happens, and how many records.
WRITING_SECONDS = 4.0
RECORDS_WRITTEN = 120
POLL_SECONDS = 0.05

DISK = "a disk is lost"
COORDINATOR = "the coordinator is killed"

_numbers = itertools.count()


class Rendezvous:
    """Where the stories meet before each fault. A story that has failed or ended is not waited for."""

    def __init__(self, stories: int) -> None:
        self._changed = threading.Condition()
        self._stories = stories
        self._absent = 0
        self._arrived: Counter[str] = Counter()
        self._open: set[str] = set()

    def arrive(self, point: str) -> None:
        """Called by a story. Returns when the fault is about to happen."""
        with self._changed:
            self._arrived[point] += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: point in self._open)

    def leave(self) -> None:
        """Called by a story that will arrive nowhere any more."""
        with self._changed:
            self._absent += 1
            self._changed.notify_all()

    def open(self, point: str) -> int:
        """Waits for all stories, lets them go on, and returns how many there were."""
        with self._changed:
            self._changed.wait_for(lambda: self._arrived[point] + self._absent >= self._stories)
            self._open.add(point)
            self._changed.notify_all()
            return self._arrived[point]


class Story(threading.Thread):
    """Plays the story with one client. Afterwards `failure` is None, or what went wrong, and `step` says where."""

    def __init__(self, client: Client, bootstrap: str, rendezvous: Rendezvous) -> None:
        """`before_delete` may be set; it is called with the group before its topic is deleted."""
        super().__init__(daemon=True, name=f"story of {client.name}")
        self.client = client
        self.step = "nothing"
        self.failure: BaseException | None = None
        plain = client.name.replace("@", "").replace("/", "-")
        self.topic = f"of-{plain}"
        self.group = f"group-of-{plain}"
        self.bootstrap = bootstrap
        self.before_delete: Callable[[str], None] = lambda _group: None
        self._rendezvous = rendezvous
        self._members: list[Member] = []
        self._acknowledged: set[bytes] = set()

    def run(self) -> None:
        try:
            self._play()
        except BaseException as error:  # noqa: BLE001 (shown by the test, which runs in another thread)
            self.failure = error
        finally:
            self._rendezvous.leave()
            for member in self._members:
                if member.is_alive():
                    self._close_after_failure(member)

    def _close_after_failure(self, member: Member) -> None:
        try:
            member.close()
        except BaseException as error:  # noqa: BLE001 (the first failure is the one to show)
            self.failure = self.failure or error

    def _play(self) -> None:
        self._create_and_list()
        self._write_with_every_compression()
        first, second, third = self._members = [self._member() for _ in range(3)]
        self._three_members_read()
        self._write_during(DISK)
        self._one_leaves_and_one_joins()
        self._write_during(COORDINATOR)
        _, _, _, fourth = self._members
        self._until(lambda: is_shared([second, third, fourth]), "the members share the partitions after the faults")
        for member in (second, third, fourth):
            self._at(f"member {self._members.index(member) + 1} closes")
            member.close()
        assert not first.is_alive()
        self._resume()
        self._delete_topic()

    # --- steps ---------------------------------------------------------------------------------------------------

    def _create_and_list(self) -> None:
        self._at("create and list")
        self.client.create(self.bootstrap, self.topic, PARTITIONS)
        self._until(lambda: self.topic in self.client.topics(self.bootstrap), "the topic is listed")

    def _write_with_every_compression(self) -> None:
        for compression in self.client.compressions():
            self._at(f"produce with {compression}")
            self._write(compression, RECORDS_EACH, seconds=0)

    def _three_members_read(self) -> None:
        for member in self._members:
            member.start()
        self._until(lambda: is_shared(self._members), "three members share the partitions")
        self._until_all_is_read()

    def _write_during(self, fault: str) -> None:
        self._at(f"wait until {fault}")
        self._rendezvous.arrive(fault)
        self._at(f"produce while {fault}")
        self._write("none", RECORDS_WRITTEN, seconds=WRITING_SECONDS)
        if not self.client.waits_for_isr:
            self._at("forget what only the lost leader had")
            self._acknowledged &= stored_values(self.bootstrap, self.topic, partitions=PARTITIONS)
        self._until_all_is_read()

    def _one_leaves_and_one_joins(self) -> None:
        first, second, third = self._members
        self._at("one leaves")
        first.close()
        self._until(lambda: is_shared([second, third]), "two members take over")
        fourth = self._member()
        self._members.append(fourth)
        fourth.start()
        self._until(lambda: is_shared([second, third, fourth]), "the new member gets its share")

    def _resume(self) -> None:
        """The group has left. A new member reads what is new, each record once, and nothing that was committed."""
        before = set(self._acknowledged)
        self._at("produce for the next life of the group")
        self._write("none", RECORDS_EACH, seconds=0)
        last = self._member()
        self._members = [last]
        last.start()
        news = self._acknowledged - before
        self._until(lambda: values(self._members) >= news, "a new member reads what is new")
        last.close()
        read = [value for _, _, value in last.read]
        again = sorted({(partition, offset) for partition, offset, value in last.read if value in before})
        assert not again, f"read again, although it was committed: (partition, offset) {again}"
        assert len(read) == len(news), f"{len(read)} records read where {len(news)} were new"

    def _delete_topic(self) -> None:
        self._at("delete")
        self.before_delete(self.group)
        self.client.delete(self.bootstrap, self.topic)
        self._until(lambda: self.topic not in self.client.topics(self.bootstrap), "the topic is listed no more")

    # --- pieces --------------------------------------------------------------------------------------------------

    def _member(self) -> Member:
        return self.client.member(self.bootstrap, self.topic, self.group)

    def _write(self, compression: str, count: int, *, seconds: float) -> None:
        given: list[str] = []

        def records() -> Iterator[Record]:
            for number in range(count):
                value = f"{self.topic}/{next(_numbers)}"
                given.append(value)
                yield number % PARTITIONS, value
                time.sleep(seconds / count)

        acknowledged = self.client.produce(self.bootstrap, self.topic, compression, records())
        assert acknowledged == set(given), f"{len(set(given) - acknowledged)} of {count} records were not acknowledged"
        self._acknowledged |= {value.encode() for value in acknowledged}

    def _until_all_is_read(self) -> None:
        try:
            self._until(lambda: values(self._members) >= self._acknowledged, "everything acknowledged is read")
        except AssertionError as error:
            missing = sorted(self._acknowledged - values(self._members))
            raise AssertionError(f"{error}; {len(missing)} records are missing, such as {missing[:5]}") from None

    def _at(self, step: str) -> None:
        self.step = step

    def _until(self, condition: Callable[[], object], what: str) -> None:
        self._at(what)
        deadline = time.monotonic() + SECONDS_MAX
        while not condition():
            for member in self._members:
                if member.failure is not None:
                    raise member.failure
            owned = [sorted(member.assigned) for member in self._members]
            assert time.monotonic() < deadline, f"not so within {SECONDS_MAX:g} s: {what} (the members own {owned})"
            time.sleep(POLL_SECONDS)


def is_shared(members: Sequence[Member]) -> bool:
    """Whether the members own all partitions together, each partition once and each member at least one."""
    owned = [partition for member in members for partition in member.assigned]
    return sorted(owned) == list(range(PARTITIONS)) and all(member.assigned for member in members)


def values(members: Sequence[Member]) -> set[bytes]:
    return {value for member in members for _, _, value in member.read}
