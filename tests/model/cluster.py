"""What can happen to the small cluster: one controller, a few brokers with a few disks, one topic.

A world is a tuple of small numbers, which name the parts. The parts repeat in very many worlds, so each decision is made
once and remembered. What happens is either part of the protocol, or a fault. Faults have a budget, so the search has an end:

* a client moves a replica to another disk of its broker, once both are online,
* a disk fails; the broker notices at once, as after an I/O error,
* a process is killed, and started again at any later time, with its dead disks as they are, or healed,
* a request or its answer is lost; the sender gives up, and the request may still arrive later, after others.

Requests and answers travel for as long as they like. One request of each kind is in flight, as in production.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from broker.core.lifecycle import HeartbeatAnswered, Registered, RegistrationRefused, RequestFailed
from common.ids import NO_LEADER, BrokerId, DirectoryId, TopicId, TopicIdPartition, Uuid
from common.metadata.metadata_version import BROKER_FEATURES
from common.metadata.registrations import BrokerRegistration
from common.protocol.errors import ApiError
from common.protocol.messages import alter_partition as alter
from common.protocol.messages import assign_replicas_to_dirs as assign
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from controller.core.alter_partition import handle_alter_partition
from controller.core.assign_replicas_to_dirs import handle_assign_replicas_to_dirs
from controller.core.fencing import fence_stale_broker
from controller.core.heartbeat import handle_broker_heartbeat
from controller.core.leaderless import elect_leaderless
from controller.core.registration import handle_broker_registration
from tests.model.broker import NO_LOG, AssignmentBatch, Broker, Disk, Heartbeat, Registration, Request, heartbeat_matters
from tests.model.metadata import CLUSTER_ID, TOPIC_ID, Controller, Log, Logs, expired, features, first_records, operate

Part = TypeVar("Part")
Result = TypeVar("Result")


class Faults(NamedTuple):
    """How often each fault may happen, and how many replicas are moved and records produced at most."""

    disks: int = 0
    kills: int = 0
    losses: int = 0
    moves: int = 0
    records: int = 0


@dataclass(frozen=True, slots=True)
class Size:
    brokers: int = 2
    disks: int = 2
    partitions: int = 1


# What is under way between one broker and the controller, for one kind of request: the request, or its answer.
@dataclass(frozen=True, slots=True)
class Asked:
    request: Request


@dataclass(frozen=True, slots=True)
class Answered:
    """`heard` is what the broker makes of the answer: an event of its lifecycle, or the codes of its assignments."""

    heard: Any


Wire = Asked | Answered | None


@dataclass(frozen=True, slots=True)
class Late:
    """A request whose sender has given up."""

    broker: int
    request: Request


class World(NamedTuple):
    """One state. Brokers, controller and wires are numbers of the tables of `Cluster`."""

    controller: int
    brokers: tuple[int, ...]
    # For each broker: registrations and heartbeats, then assignments.
    wires: tuple[tuple[int, int], ...]
    late: tuple[int, ...]
    # For each partition how many records are acknowledged.
    acknowledged: tuple[int, ...]
    left: Faults


class Step(NamedTuple):
    name: str
    world: World
    # Whether the step is a fault, or is not needed for progress.
    is_fault: bool = False


class Table(Generic[Part]):
    """Numbers for parts that are equal by their key."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self.parts: list[Part] = []

    def number(self, part: Part, key: Any) -> int:
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.parts)
            self.parts.append(part)
        return found

    def __getitem__(self, number: int) -> Part:
        return self.parts[number]


class Cluster:
    """The tables, and the steps from a world to the next ones."""

    def __init__(self, size: Size) -> None:
        self.size = size
        self.keys = [TopicIdPartition(TOPIC_ID, index) for index in range(size.partitions)]
        self.logs = Logs()
        self.brokers: Table[Broker] = Table()
        self.controllers: Table[Controller] = Table()
        self.wires: Table[Wire] = Table()
        self.lates: Table[Late] = Table()
        self._done: dict[Any, Any] = {}

    # --- the beginning -------------------------------------------------------------------------------------------------

    def first(self, faults: Faults, *, is_settled: bool) -> World:
        """Returns a world in which all brokers run and the topic has just been created. If it `is_settled`, its replicas are
        there and assigned, and one record is acknowledged."""
        log = self.logs.append(self.logs.root, features())
        brokers = tuple(self._broker(Broker.new(number, self.size.disks)) for number in range(1, self.size.brokers + 1))
        nothing = self._wire(None)
        world = World(
            self._controller(Controller(log, ())),
            brokers,
            ((nothing, nothing),) * self.size.brokers,
            (),
            (0,) * self.size.partitions,
            Faults(records=1),
        )
        world = self.settled(world)
        controller = self.controllers[world.controller]
        created = self.logs.append(controller.log, first_records(self.size.partitions, range(1, self.size.brokers + 1)))
        world = world._replace(controller=self._controller(replace(controller, log=created)))
        if is_settled:
            world = self.settled(world)
            for _ in range(self.size.partitions):
                world = world._replace(left=Faults(records=1))
                world = next(step.world for step in self.steps(world) if step.name.startswith("produce"))
        return world._replace(left=faults)

    def settled(self, world: World) -> World:
        """Returns where the protocol alone leads to, when the first thing that has not happened yet always happens first."""
        seen = {world}
        while True:
            following = next(
                (step.world for step in self.steps(world) if not step.is_fault and step.world not in seen), None
            )
            if following is None:
                return world
            seen.add(following)
            world = following

    # --- steps ---------------------------------------------------------------------------------------------------------

    def steps(self, world: World) -> Iterator[Step]:
        """Yields everything that can happen next."""
        for step in self._steps(world):
            yield step._replace(world=self._without_stale(step.world)) if step.world.late else step

    def _without_stale(self, world: World) -> World:
        """Drops late requests with an earlier epoch of their broker: they would be refused whenever they came."""
        brokers = self.controllers[world.controller].log.state.brokers
        late = tuple(sorted(each for each in world.late if not _is_stale(self.lates[each], brokers)))
        return world if late == world.late else world._replace(late=late)

    def _steps(self, world: World) -> Iterator[Step]:
        controller = self.controllers[world.controller]
        for index, number in enumerate(world.brokers):
            broker = self.brokers[number]
            registration = controller.log.state.brokers.get(broker.broker_id)
            if registration is not None and not registration.fenced and not _keeps_session(broker, registration.epoch):
                yield Step(f"session of {broker.broker_id} expires", self._expires(world, controller, broker.broker_id))
            if broker.process is None:
                yield from self._while_down(world, controller, index, broker)
            else:
                yield from self._while_up(world, controller, index, broker)
        for place, late in enumerate(world.late):
            yield self._arrives_late(world, place, self.lates[late])
        if controller.log.state.leads_any(NO_LEADER):
            swept, _ = self._operate(world.controller, "sweep", elect_leaderless, None)
            if swept != world.controller:
                yield Step("the controller sweeps", world._replace(controller=swept))
        for key in self.keys:
            yield from self._of_replication(world, controller.log, key)

    def _while_down(self, world: World, controller: Controller, index: int, broker: Broker) -> Iterator[Step]:
        if any(not disk.is_dead for disk in broker.disks):
            yield self._starts(world, controller.log, index, broker, broker.disks, "")
        if any(disk.is_dead for disk in broker.disks):
            healed = tuple(replace(disk, is_dead=False) for disk in broker.disks)
            yield self._starts(world, controller.log, index, broker, healed, " with its disks healed")

    def _starts(self, world: World, log: Log, index: int, broker: Broker, disks: tuple[Disk, ...], how: str) -> Step:
        started = self._remembered(("start", world.brokers[index], log.number, how), lambda: broker.started(log, disks))
        return Step(f"broker {broker.broker_id} starts{how}", self._with_broker(world, index, started))

    def _expires(self, world: World, controller: Controller, broker_id: int) -> World:
        silent = replace(controller, sessions=expired(controller.sessions, broker_id))
        fenced, _ = self._operate(self._controller(silent), "fence", fence_stale_broker, None)
        return world._replace(controller=fenced)

    def _while_up(self, world: World, controller: Controller, index: int, broker: Broker) -> Iterator[Step]:
        process, name = broker.process, f"broker {broker.broker_id}"
        assert process is not None
        log, number = controller.log, world.brokers[index]
        lifecycle_wire, assignment_wire = (self.wires[each] for each in world.wires[index])
        if process.applied is not log:
            following = self._remembered(("after", process.applied.number, log.number), lambda: _after(process.applied, log))
            applied = self._remembered(("apply", number, following.number), lambda: broker.applies(following))
            yield Step(f"{name} applies {following.number}", self._with_broker(world, index, applied))
        if lifecycle_wire is None and process.lifecycle._next_request_ns is not None and heartbeat_matters(broker, log):
            yield Step(f"{name} ticks", self._with_broker(world, index, self._remembered(("tick", number), broker.ticks)))
        if assignment_wire is None and process.queue._ready and process.lifecycle.broker_epoch >= 0:
            sent = self._remembered(("assign", number), broker.sends_assignments)
            yield Step(f"{name} sends assignments", self._with_broker(world, index, sent))
        for kind, wire in enumerate((lifecycle_wire, assignment_wire)):
            if wire is not None:
                yield from self._of_wire(world, index, kind, wire)
        yield from self._of_moves(world, index, broker)
        if world.left.disks:
            for disk_number, disk in enumerate(broker.disks):
                if not disk.is_dead:
                    failed = self._remembered(("disk", number, disk_number), partial(broker.fails_directory, disk_number))
                    left = world.left._replace(disks=world.left.disks - 1)
                    failing = self._with_broker(world, index, failed)._replace(left=left)
                    yield Step(f"{name} loses disk {disk_number}", failing, is_fault=True)
        if world.left.kills:
            left = world.left._replace(kills=world.left.kills - 1)
            killed = self._with_broker(world, index, (broker.killed(), []))
            yield Step(f"{name} is killed", killed._replace(left=left), is_fault=True)

    def _of_moves(self, world: World, index: int, broker: Broker) -> Iterator[Step]:
        assert broker.process is not None
        number, name = world.brokers[index], f"broker {broker.broker_id}"
        for key, where in broker.process.hosted.items():
            if broker.can_advance_copy(key):
                advanced = self._remembered(("copy", number, key), partial(broker.advances_copy, key))
                yield Step(f"the copy of {key.partition} on {name} has caught up", self._with_broker(world, index, advanced))
            if world.left.moves and key not in broker.process.known.movement:
                for disk_number, disk in enumerate(broker.disks):
                    if not disk.is_dead and disk.directory_id != where:
                        begun = self._remembered(
                            ("move", number, key, disk_number), partial(broker.begins_move, key, disk_number)
                        )
                        left = world.left._replace(moves=world.left.moves - 1)
                        moving = self._with_broker(world, index, begun)._replace(left=left)
                        yield Step(f"{name} moves {key.partition} to disk {disk_number}", moving, is_fault=True)

    def _of_wire(self, world: World, index: int, kind: int, wire: Asked | Answered) -> Iterator[Step]:
        number = world.brokers[index]
        broker = self.brokers[number]
        name, what = f"broker {broker.broker_id}", ("heartbeat", "assignments")[kind]
        if isinstance(wire, Asked):
            controller, heard = self._handled(world.controller, broker.broker_id, wire.request)
            answered = self._with_wire(world._replace(controller=controller), index, kind, Answered(heard))
            yield Step(f"{what} of {name} arrive: {_told(wire.request)}", answered)
        else:
            heard = self._hears(number, kind, wire.heard)
            yield Step(
                f"{name} hears of its {what}", self._with_broker(self._with_wire(world, index, kind, None), index, heard)
            )
        if world.left.losses:
            failed = self._hears(number, kind, RequestFailed("lost") if kind == 0 else None)
            lost = self._with_broker(self._with_wire(world, index, kind, None), index, failed)
            lost = lost._replace(left=world.left._replace(losses=world.left.losses - 1))
            yield Step(f"{name} gives up on its {what}", lost, is_fault=True)
            if isinstance(wire, Asked):
                late = Late(broker.broker_id, wire.request)
                later = lost._replace(late=(*lost.late, self.lates.number(late, late)))
                yield Step(f"{name} gives up on its {what}, which come later", later, is_fault=True)

    def _arrives_late(self, world: World, place: int, late: Late) -> Step:
        controller, _ = self._handled(world.controller, late.broker, late.request)
        others = (*world.late[:place], *world.late[place + 1 :])
        name = f"a late request of broker {late.broker} arrives: {_told(late.request)}"
        return Step(name, world._replace(controller=controller, late=others), is_fault=True)

    def _of_replication(self, world: World, log: Log, key: TopicIdPartition) -> Iterator[Step]:
        if key.topic_id not in log.state.topics:
            return
        partition = log.partition(key)
        brokers = {self.brokers[number].broker_id: self.brokers[number] for number in world.brokers}
        versions = {each: broker.version(key) for each, broker in brokers.items() if _knows(broker, partition, key)}
        leader = partition.leader
        if versions.get(leader, NO_LOG) == NO_LOG or _partition_of(brokers[leader], key) != partition:
            return
        for index, follower in enumerate(brokers):
            if follower == leader or versions.get(follower, NO_LOG) == NO_LOG:
                continue
            if versions[follower] != versions[leader] or follower not in partition.isr:
                fetched = brokers[follower].with_version(key, versions[leader])
                following = self._with_broker(world, index, (fetched, []))
                if follower not in partition.isr:
                    following = following._replace(controller=self._expanded(world.controller, log, key, follower))
                if following != world:
                    yield Step(f"broker {follower} catches up with {key.partition}", following)
        if world.left.records and all(versions.get(member) == versions[leader] for member in partition.isr):
            produced = world._replace(left=world.left._replace(records=world.left.records - 1))
            for index, member in enumerate(brokers):
                if member in partition.isr:
                    produced = self._with_broker(
                        produced, index, (brokers[member].with_version(key, versions[leader] + 1), [])
                    )
            acknowledged = tuple(
                versions[leader] + 1 if each == key else old for each, old in zip(self.keys, world.acknowledged, strict=True)
            )
            yield Step(f"produce to {key.partition}", produced._replace(acknowledged=acknowledged), is_fault=True)

    # --- parts of steps ------------------------------------------------------------------------------------------------

    def _handled(self, controller: int, broker_id: int, request: Request) -> tuple[int, Any]:
        """Returns the controller after the request, and what the broker makes of the answer."""
        match request:
            case Registration():
                after, response = self._operate(
                    controller, (broker_id, request), handle_broker_registration, _registration(broker_id, request)
                )
                if isinstance(response, ApiError):
                    return after, RegistrationRefused(response.code)
                return after, Registered(response.broker_epoch, request.directories)
            case Heartbeat():
                after, response = self._operate(
                    controller, (broker_id, request), handle_broker_heartbeat, _heartbeat(broker_id, request)
                )
                if isinstance(response, ApiError):
                    response = BrokerHeartbeatResponse(error_code=response.code)
                return after, HeartbeatAnswered(
                    error_code=response.error_code,
                    is_caught_up=response.is_caught_up,
                    is_fenced=response.is_fenced,
                    should_shut_down=response.should_shut_down,
                    offline_directories=request.sent.offline_directories,
                )
            case AssignmentBatch():
                after, response = self._operate(
                    controller, (broker_id, request), handle_assign_replicas_to_dirs, _assignments(broker_id, request)
                )
                return after, None if isinstance(response, ApiError) else _codes(response)

    def _operate(self, controller: int, name: Any, operation: Callable[[Any, Any], Any], request: Any) -> tuple[int, Any]:
        def carried_out() -> tuple[int, Any]:
            after, response = operate(self.logs, self.controllers[controller], operation, request)
            return self._controller(after), response

        return self._remembered(("operate", controller, name), carried_out)

    def _expanded(self, controller: int, log: Log, key: TopicIdPartition, follower: int) -> int:
        partition = log.partition(key)
        members = [each for each in partition.replicas if each in (*partition.isr, follower)]
        epochs = {each: registration.epoch for each, registration in log.state.brokers.items()}
        data = alter.RequestPartitionData(
            partition_index=key.partition,
            leader_epoch=partition.leader_epoch,
            new_isr_with_epochs=[alter.BrokerState(broker_id=each, broker_epoch=epochs[each]) for each in members],
            partition_epoch=partition.partition_epoch,
        )
        request = alter.AlterPartitionRequest(
            broker_id=partition.leader,
            broker_epoch=epochs[partition.leader],
            topics=[alter.RequestTopicData(topic_id=TOPIC_ID, partitions=[data])],
        )
        after, _ = self._operate(controller, ("isr", key, follower), handle_alter_partition, request)
        return after

    def _hears(self, number: int, kind: int, heard: Any) -> tuple[Broker, list[Request]]:
        broker = self.brokers[number]
        if kind == 0:
            return self._remembered(("hears", number, heard), lambda: broker.hears(heard))
        codes = None if heard is None else dict(heard)
        return self._remembered(("hears assigned", number, heard), lambda: broker.hears_assigned(codes))

    def _remembered(self, name: Any, decide: Callable[[], Result]) -> Result:
        """Decides once. `name` says everything that the decision depends on."""
        found: Result | None = self._done.get(name)
        if found is None:
            found = self._done[name] = decide()
        return found

    def _with_broker(self, world: World, index: int, changed: tuple[Broker, Sequence[Request]]) -> World:
        broker, requests = changed
        brokers = (*world.brokers[:index], self._broker(broker), *world.brokers[index + 1 :])
        world = world._replace(brokers=brokers)
        if broker.process is None:
            # What is under way from a dead process may still arrive; nobody waits for the answer.
            late = tuple(
                self.lates.number(late, late)
                for each in world.wires[index]
                if isinstance(wire := self.wires[each], Asked)
                for late in (Late(broker.broker_id, wire.request),)
            )
            nothing = self._wire(None)
            wires = (*world.wires[:index], (nothing, nothing), *world.wires[index + 1 :])
            return world._replace(wires=wires, late=tuple(sorted((*world.late, *late))))
        for request in requests:
            world = self._with_wire(world, index, int(isinstance(request, AssignmentBatch)), Asked(request))
        return world

    def _with_wire(self, world: World, index: int, kind: int, wire: Wire) -> World:
        mine = list(world.wires[index])
        mine[kind] = self._wire(wire)
        return world._replace(wires=(*world.wires[:index], (mine[0], mine[1]), *world.wires[index + 1 :]))

    def _broker(self, broker: Broker) -> int:
        return self.brokers.number(broker, broker.key)

    def _controller(self, controller: Controller) -> int:
        return self.controllers.number(controller, controller.key)

    def _wire(self, wire: Wire) -> int:
        return self.wires.number(wire, wire)


def _keeps_session(broker: Broker, epoch: int) -> bool:
    """Whether the broker that has this epoch runs. The session of any other may expire at every moment."""
    return broker.process is not None and broker.process.lifecycle.broker_epoch == epoch


def _is_stale(late: Late, brokers: Mapping[BrokerId, BrokerRegistration]) -> bool:
    match late.request:
        case Registration():
            return False
        case Heartbeat(sent, _):
            epoch = sent.broker_epoch
        case AssignmentBatch(epoch, _):
            pass
    registration = brokers.get(BrokerId(late.broker))
    return registration is not None and epoch < registration.epoch


def _after(log: Log, end: Log) -> Log:
    while end.parent is not log:
        assert end.parent is not None, "the log is no beginning of the other"
        end = end.parent
    return end


def _partition_of(broker: Broker, key: TopicIdPartition) -> Any:
    assert broker.process is not None
    return broker.process.applied.state.partition(*key)


def _knows(broker: Broker, partition: Any, key: TopicIdPartition) -> bool:
    """Whether the broker runs and has heard of the present leader."""
    if broker.process is None:
        return False
    known = _partition_of(broker, key)
    return known is not None and known.leader_epoch == partition.leader_epoch


def _told(request: Request) -> str:
    match request:
        case Registration():
            return f"incarnation {request.incarnation} with {len(request.directories)} directories"
        case Heartbeat(sent, offset):
            offline = ", ".join(_short(each) for each in sent.offline_directories)
            return f"applied {offset}{', stay fenced' if sent.want_fence else ''}{', offline ' + offline if offline else ''}"
        case AssignmentBatch():
            return ", ".join(f"{[key.partition for key in keys]} to {_short(each)}" for each, keys in request.batch)


def _short(directory_id: DirectoryId) -> str:
    text = bytes(directory_id).rstrip(b".")
    return text.decode() if text.startswith(b"broker") else {0: "UNASSIGNED", 1: "LOST", 2: "MIGRATING"}[text[-1]]


# --- production requests -----------------------------------------------------------------------------------------------


def _registration(broker_id: int, request: Registration) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid(bytes([broker_id, request.incarnation]) * 8),
        listeners=[Listener(name="PLAINTEXT", host=f"broker-{broker_id}", port=9092)],
        features=[
            Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
            for name, levels in BROKER_FEATURES.items()
        ],
        log_dirs=list(request.directories),
    )


def _heartbeat(broker_id: int, request: Heartbeat) -> BrokerHeartbeatRequest:
    return BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=request.sent.broker_epoch,
        current_metadata_offset=request.metadata_offset,
        want_fence=request.sent.want_fence,
        want_shut_down=request.sent.want_shut_down,
        offline_log_dirs=list(request.sent.offline_directories),
    )


def _assignments(broker_id: int, request: AssignmentBatch) -> assign.AssignReplicasToDirsRequest:
    return assign.AssignReplicasToDirsRequest(
        broker_id=broker_id,
        broker_epoch=request.broker_epoch,
        directories=[
            assign.RequestDirectoryData(
                id=directory_id,
                topics=[
                    assign.RequestTopicData(
                        topic_id=TOPIC_ID,
                        partitions=[assign.RequestPartitionData(partition_index=key.partition) for key in keys],
                    )
                ],
            )
            for directory_id, keys in request.batch
        ],
    )


def _codes(response: assign.AssignReplicasToDirsResponse) -> tuple[tuple[tuple[DirectoryId, TopicIdPartition], int], ...]:
    return tuple(
        (
            (DirectoryId(directory.id), TopicIdPartition(TopicId(topic.topic_id), partition.partition_index)),
            int(partition.error_code),
        )
        for directory in response.directories
        for topic in directory.topics
        for partition in topic.partitions
    )
