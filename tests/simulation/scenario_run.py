"""The state that the commands of a scenario share: one cluster, its clients, and how much of its output was shown so far.

Shell of the tests. A broker's first disk is written `broker=2 dir=1`, its metadata disk `dir=metadata`; a node is `broker=2`
or `controller`. `show log`, `show records` and `show requests` each show what is new since the last use of the same command,
`cluster` or `create topic`.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from common.net.node_channel import NodeChannel
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from common.protocol.schema import Struct
from common.time_units import NS_PER_S
from tests.simulation.cluster import CONTROLLER_ID, CONTROLLER_PORT, SimulatedClient, SimulatedCluster
from tests.simulation.disk import SimulatedDisk
from tests.simulation.environment import SimulatedEnvironment, SimulatedWorld
from tests.simulation.request_tap import Exchange, TappedNetwork
from tests.simulation.scenario_views import (
    Names,
    event_line,
    exchange_line,
    metadata_records,
    record_line,
    with_assignments_together,
)

CLIENT = "client"

METADATA_SEGMENT = f"__cluster_metadata-0/{0:020d}.log"

# `await` and `produce` round the time they took up to one of these steps, so that it is the same for every seed.
STEPS_NS = tuple((f"{seconds} s", seconds * NS_PER_S) for seconds in (2, 5, 10, 20, 40))
AT_ONCE = ("50 ms", NS_PER_S // 20)

DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m)")
UNITS_NS = MappingProxyType({"ms": NS_PER_S // 1000, "s": NS_PER_S, "m": 60 * NS_PER_S})


def duration_ns(text: str) -> int:
    """Parses `500ms`, `2s`, `1m`."""
    match = DURATION.fullmatch(text)
    if match is None:
        raise ValueError(f"{text} is no duration; write 500ms, 2s or 1m")
    return round(float(match[1]) * UNITS_NS[match[2]])


@dataclass(slots=True)
class Arguments:
    """The words of a command and its `key=value` options. It is an error if a command does not use all of them."""

    given: list[str]
    words: list[str] = field(init=False)
    options: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.words = [word for word in self.given if "=" not in word]
        self.options = dict(word.split("=", 1) for word in self.given if "=" in word)

    def word(self) -> str:
        if not self.words:
            raise ValueError("a word is missing")
        return self.words.pop(0)

    def rest(self) -> list[str]:
        rest, self.words = self.words, []
        return rest

    def option(self, key: str, default: str | None = None) -> str:
        value = self.options.pop(key, default)
        if value is None:
            raise ValueError(f"{key}= is missing")
        return value

    def others(self) -> dict[str, str]:
        others, self.options = self.options, {}
        return others

    def broker(self) -> int:
        return int(self.option("broker"))

    def node(self) -> int:
        """Parses `broker=2` or the word `controller`."""
        if "broker" in self.options:
            return self.broker()
        word = self.word()
        if word != "controller":
            raise ValueError("name a node: broker=N or controller")
        return CONTROLLER_ID

    def check_that_all_were_used(self) -> None:
        if self.words or self.options:
            raise ValueError(f"not understood: {' '.join([*self.words, *self.options])}")


Command = Callable[["ScenarioRun", Arguments], Awaitable[list[str] | None]]


class CommandTable(dict[str, Command]):
    """Commands by name."""

    def named(self, name: str) -> Callable[[Command], Command]:
        """Decorates the coroutine function of the command with this name."""

        def add(function: Command) -> Command:
            self[name] = function
            return function

        return add


class ScenarioRun:
    """One run of a scenario file on one cluster."""

    def __init__(self, world: SimulatedWorld, network: TappedNetwork, task_group: asyncio.TaskGroup) -> None:
        self.world = world
        self.names = Names()
        self._network = network
        self._task_group = task_group
        self._cluster: SimulatedCluster | None = None
        self._client: SimulatedClient | None = None
        self._controller_channel: NodeChannel | None = None
        self._killed: set[SimulatedEnvironment] = set()
        self._seen_events = 0
        self._seen_records = 0
        self._seen_exchanges = 0
        # The number of events when the last command that acts on the cluster began. `await` looks at later events only.
        self.acted_at = 0
        self.meant_to_run: set[int] = set()
        self.answers: list[str] = []

    @property
    def cluster(self) -> SimulatedCluster:
        assert self._cluster is not None, "the first command is `cluster`"
        return self._cluster

    @property
    def client(self) -> SimulatedClient:
        assert self._client is not None, "the first command is `cluster`"
        return self._client

    async def start(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self.meant_to_run = set(cluster.broker_ids)
        await cluster.start()
        # Wait until every broker sends its regular heartbeats.
        await self.world.sleep(1)
        self._client = SimulatedClient(cluster, self._task_group)
        self.forget()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        if self._controller_channel is not None:
            self._controller_channel.close()

    def start_task(self, waits: Coroutine[Any, Any, None]) -> None:
        """Starts a task that runs beside the commands."""
        self._task_group.create_task(waits)

    def look(self) -> Names:
        """Returns the names of all ids, including ids that were created since the last call."""
        self.names.look(self.world._disks, self.cluster.state)
        return self.names

    def forget(self) -> None:
        """Marks everything that has happened so far as shown."""
        self._seen_events = self.acted_at = len(self.world.events)
        self._seen_records = len(self._records())
        self._seen_exchanges = sum(each.sender != CLIENT for each in self._network.exchanges)
        self.look()

    def disk(self, arguments: Arguments) -> SimulatedDisk:
        return self.disk_at(arguments.broker(), arguments.option("dir"))

    def disk_at(self, broker_id: int, name: str) -> SimulatedDisk:
        return self.world.disk(f"/b{broker_id}/{name if name == 'metadata' else f'd{name}'}")

    def live_broker(self) -> int:
        """Returns the broker that clients ask: the last one alive, because most scenarios break the first."""
        return next(id_ for id_ in reversed(self.cluster.broker_ids) if not self.cluster.env(id_).is_dead)

    def note_killed(self, node_id: int) -> None:
        self.meant_to_run.discard(node_id)
        self._killed.add(self.cluster.env(node_id))

    async def ask_controller(self, request: Struct) -> Any:
        if self._controller_channel is None:
            self._controller_channel = NodeChannel(
                self.world.node(CLIENT),
                host="controller",
                port=CONTROLLER_PORT,
                client_id="scenario",
                task_group=self._task_group,
            )
        return await self._controller_channel.send(request, deadline_ns=self.world.now_ns() + 30 * NS_PER_S)

    # --- what is new ----------------------------------------------------------------------------------------------

    def new_events(self, node: str | None, wanted: frozenset[str]) -> list[str]:
        events = self.world.events[self._seen_events :]
        self._seen_events = len(self.world.events)
        return [event_line(self.look(), e) for e in events if e.name in wanted and node in (None, e.node)]

    def new_records(self) -> list[str]:
        records = self._records()[self._seen_records :]
        self._seen_records += len(records)
        return [line for record in records if (line := record_line(self.look(), record)) is not None]

    def new_exchanges(self, sender: str | None, words: list[str]) -> list[str]:
        """Returns the new exchanges that contain one of the words. A heartbeat equal to the broker's previous one is left
        out."""
        names = self.look()
        exchanges = [each for each in self._network.exchanges if each.sender != CLIENT]
        before = {
            exchange.sender: exchange_line(names, exchange)
            for exchange in exchanges[: self._seen_exchanges]
            if isinstance(exchange.request, BrokerHeartbeatRequest)
        }
        fresh = [each for each in exchanges[self._seen_exchanges :] if sender in (None, each.sender)]
        self._seen_exchanges = len(exchanges)
        wanted = [
            each
            for each in _without_usual_heartbeats(names, before, fresh)
            if not words or any(word in exchange_line(names, each).split() for word in words)
        ]
        return [exchange_line(names, exchange) for exchange in with_assignments_together(wanted)]

    def _records(self) -> list[Struct]:
        content = self.world.disk("/controller/metadata").files().get(METADATA_SEGMENT, b"")
        return metadata_records(content)

    def process_line(self, broker_id: int) -> str:
        env = self.cluster.env(broker_id)
        if not env.is_dead:
            node = self.cluster.nodes.get(broker_id)
            return "STARTING" if node is None or node.broker is None else node.broker.lifecycle.state.name
        if env.exit_code is None:
            return "killed" if env in self._killed else "stopped"
        ends = [e for e in self.world.events if e.node == env.name and e.name in ("node_halted", "node_not_started")]
        return f"exited with status {env.exit_code}: {self.look().in_text(ends[-1].fields['reason'])}"


def _without_usual_heartbeats(names: Names, before: dict[str, str], exchanges: list[Exchange]) -> Iterator[Exchange]:
    """Leaves out a heartbeat that equals the broker's previous one. `before` maps each broker to the line of its previous
    heartbeat."""
    for exchange in exchanges:
        if isinstance(exchange.request, BrokerHeartbeatRequest):
            line = exchange_line(names, exchange)
            is_usual = before.get(exchange.sender) == line
            before[exchange.sender] = line
            if is_usual:
                continue
        yield exchange


def partition_of(text: str) -> tuple[str, int]:
    """Parses `t-0` into topic and partition."""
    topic, _, index = text.rpartition("-")
    return topic, int(index)


def broker_lists(text: str) -> list[list[int]]:
    """Parses `1,2,3`, or `1,2;2,3` with one list for each partition."""
    return [[int(each) for each in part.split(",")] for part in text.split(";")]


def rounded_up(elapsed_ns: int, *steps: tuple[str, int]) -> str:
    """Returns the name of the shortest step, from `steps` and STEPS_NS, that is not shorter than this time."""
    return next((name for name, limit_ns in (*steps, *STEPS_NS) if elapsed_ns <= limit_ns), "a minute")
