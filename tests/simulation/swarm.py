"""Runs one seed: carries out its plan on virtual time and checks everything.

A run has these phases: chaos (clients work while the faults of the schedule happen), heal (everything is repaired), converge
(within a time limit all brokers run and every replica is in sync), check, with trials that need a settled cluster. The
schedule is plain data, so a part of it can be run again. A failure is shrunk in this way. When the time of a fault comes and
it would cost a partition its last untouched in-sync replica, the fault is withheld. So leaving out one fault may let another
one happen.
"""

import asyncio
import random
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from common.ids import TopicIdPartition
from common.metadata.directory_ids import LOST, is_reserved
from common.metadata.metadata_version import (
    DIRECTORY_ASSIGNMENT_LEVEL,
    EPOCH_BUMP_TRANSACTION_VERSION,
    LATEST_LEVEL,
    METADATA_VERSION_FEATURE,
    TRANSACTION_VERSION_FEATURE,
    is_directory_assignment_supported,
)
from common.metadata.registrations import PartitionRegistration, Topic
from common.net.node_channel import ChannelError
from common.protocol.messages.update_features import UpgradeType
from common.time_units import NS_PER_MS, NS_PER_S
from tests.simulation.checkers import Checkers, InvariantViolated
from tests.simulation.cluster import CONTROLLER_ID, SimulatedCluster
from tests.simulation.disk_trial import DiskTrial, draw_trouble
from tests.simulation.disk_trial_changes import draw_work
from tests.simulation.environment import SimulatedWorld
from tests.simulation.faults import Fault, Lab
from tests.simulation.group_member import read_position
from tests.simulation.history import TRIMMED, History, Outcome
from tests.simulation.moments import Moments
from tests.simulation.plans import CHAOS_SECONDS, Plan, draw_plan
from tests.simulation.small_slices import slices_of
from tests.simulation.throttle_changes import ThrottleChanges
from tests.simulation.transactional_producer import TransactionalProducer, read_committed
from tests.simulation.untouched import LOOK_SECONDS, UntouchedReplicas
from tests.simulation.upgrades import LevelChanges
from tests.simulation.workload import ALL, Workload, WorkloadClient

# The time limit from the end of the repairs until the last replica is in sync.
CONVERGENCE_BOUND_SECONDS = 60.0
# After this time the operator looks at what has not converged.
OPERATOR_PATIENCE_SECONDS = 20.0
LAST_WRITES_BOUND_SECONDS = 10.0
REFUSAL_SECONDS = 5.0
# The trial of a broken disk deletes records of it.
PLACED_TOPIC = f"{TRIMMED}placed-last"
REVIVED_TOPIC = "revived"
ROOM_BELOW_FLOOR = 16 * 1024 * 1024
OUTGROWTH_BOUND_SECONDS = 20.0
UNKNOWN_LEVELS = ((METADATA_VERSION_FEATURE, LATEST_LEVEL + 1), ("share.version", 1))
# After this time every probe has measured the free space of its disk.
PROBED_SECONDS = 3.0

Answer = TypeVar("Answer")


@dataclass(slots=True)
class SeedReport:
    """The figures of one run."""

    seed: int
    faults: list[str] = field(default_factory=list)
    """The faults that happened."""
    withheld: int = 0
    acknowledged: int = 0
    refused: int = 0
    convergence_seconds: float = 0.0
    virtual_seconds: float = 0.0
    trace_hash: str = ""


def run_seed(seed: int) -> SeedReport:
    """Runs one seed. Raises an exception if an invariant is violated, a record is lost, the cluster does not converge or a
    daemon fails."""
    return SeedRun(draw_plan(seed)).run()


# --- running -----------------------------------------------------------------------------------------------------


class SeedRun:
    """One run of a plan. Its world and its history can be inspected afterwards."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = SimulatedWorld(plan.seed)
        self.world.answers_cached_reads = plan.has_cached_reads
        self.report = SeedReport(plan.seed)
        self.history = History()
        self._cluster = SimulatedCluster(
            self.world,
            brokers=plan.brokers,
            disks=plan.disks,
            overrides=plan.overrides,
            level=plan.level,
            transaction_version=plan.transaction_version,
        )
        self._lab = Lab(self._cluster)
        self._untouched = UntouchedReplicas(self._cluster)
        self._checkers = Checkers(self._cluster, self.history, harmed=self._lab.harmed)
        self._moments = Moments(self.world)
        self._is_over = False
        self._is_refusing = False
        self._lost: dict[TopicIdPartition, None] = {}

    def run(self) -> SeedReport:
        """Runs the plan. Raises what `run_seed` raises."""

        async def scenario(_: SimulatedWorld) -> None:
            await self._run()

        with slices_of(self.plan.slice_size):
            self.world.run(scenario)
        self.report.virtual_seconds = self.world.now_ns() / NS_PER_S
        self.report.trace_hash = self.world.trace_hash()
        return self.report

    async def _run(self) -> None:
        await self._cluster.start()
        self._slow_appends()
        self._checkers.install()
        async with asyncio.TaskGroup() as group:
            workload = Workload(self._cluster, self.history, self.plan.workload, group, guard=self._untouched)
            await workload.start()
            keepers = [group.create_task(self._lab.supervise()), group.create_task(self._watch())]
            levels = LevelChanges(self._cluster, self._lab, group)
            operator = WorkloadClient(self._cluster, self.history, "client-throttles", group)
            throttles = ThrottleChanges(self._cluster, operator, workload.led_topics, self.plan.workload.partitions)
            self._lab.note("chaos")
            async with asyncio.TaskGroup() as trouble:
                trouble.create_task(self._rise_in_trouble(levels))
                trouble.create_task(self._change_transactions(levels, workload.transactional_producers))
                trouble.create_task(self._throttle(operator, throttles))
                await self._carry_out()
            self._lab.note("heal")
            await self._heal()
            if self.plan.throttle_pause is not None:
                await throttles.end()
            operator.close()
            self._lab.note("converge")
            await self._converge(levels)
            await self._rise_and_fall(levels)
            await workload.stop()
            # The workload may have created or deleted a topic just before it stopped.
            await self._converge()
            client = WorkloadClient(self._cluster, self.history, "client-last", group)
            await self._write_once_more(client, workload.lasting_topics + workload.trimmed_topics + workload.careless_topics)
            await self._read_positions(client, workload)
            await self._read_transactions(client, workload)
            client.close()
            await self._checkers.at_quiescence()
            await self._create_on_a_settled_cluster(group)
            if self.plan.disks > 1:
                self._lab.note("disk trial")
                await self._break_a_disk()
            if self.plan.revives:
                self._lab.note("revival")
                await self._revive_lost_replicas(group)
            if self.plan.refuses and is_directory_assignment_supported(self._cluster.state.metadata_version):
                self._lab.note("refusal")
                await self._lose_a_partition(workload.lasting_topics[0])
            self._lab.note("check")
            self._is_over = True
            self._lab.end()
            await asyncio.gather(*keepers)
        self._checkers.at_end(excused=self._lost)
        if self.plan.outgrows:
            self._lab.note("outgrowth")
            await self._outgrow_every_node()
        self._count()

    # --- throttles -----------------------------------------------------------------------------------------------

    async def _throttle(self, operator: WorkloadClient, throttles: ThrottleChanges) -> None:
        """Changes throttles until the trouble ends."""
        end_ns = self.world.now_ns() + round(CHAOS_SECONDS * NS_PER_S)
        while self.plan.throttle_pause is not None and self.world.now_ns() < end_ns:
            await operator.pause(self.plan.throttle_pause)
            await throttles.change()

    # --- levels --------------------------------------------------------------------------------------------------

    async def _rise_in_trouble(self, levels: LevelChanges) -> None:
        rise = self.plan.rise
        if rise is not None and rise.at_ns is not None:
            await self.world.loop.sleep_until(self.world.now_ns() + rise.at_ns)
            await levels.update(rise.level, UpgradeType.UPGRADE)

    async def _change_transactions(self, levels: LevelChanges, producers: Sequence[TransactionalProducer]) -> None:
        """Changes the level of transaction.version while producers are in the middle of transactions."""
        began_ns, level = self.world.now_ns(), self.plan.transaction_version
        for at_ns, to in self.plan.transaction_changes:
            await self.world.loop.sleep_until(began_ns + at_ns)
            kind = UpgradeType.UPGRADE if to > level else UpgradeType.SAFE_DOWNGRADE
            await levels.update(to, kind, feature=TRANSACTION_VERSION_FEATURE)
            level = to
            for producer in producers if to >= EPOCH_BUMP_TRANSACTION_VERSION else ():
                producer.may_bump = True

    async def _rise_and_fall(self, levels: LevelChanges) -> None:
        """Rises where that has not happened yet, adds disks, falls, loses a disk and rises again, while clients work. After
        each step the cluster must settle."""
        rise = self.plan.rise
        if rise is not None:
            if rise.at_ns is None:
                await levels.update(rise.level, UpgradeType.UPGRADE)
                await self._converge(levels)
            for _ in range(rise.further_disks):
                await levels.add_disks(self._converge)
            if rise.falls:
                await levels.update(self.plan.level, UpgradeType.UNSAFE_DOWNGRADE)
                await self._converge()
                fault = self._draw_disk_to_lose()
                if fault is not None:
                    self._untouched.begin(fault)
                    await levels.lose_disk(fault)
                    self._untouched.end(fault)
                await levels.update(rise.level, UpgradeType.UPGRADE)
                if fault is not None:
                    self._lab.let_go(fault.node)
                await self._converge()
        levels.close()

    def _draw_disk_to_lose(self) -> Fault | None:
        """Returns the death of a disk whose broker has others. None if every broker has one disk."""
        rng = random.Random(f"{self.plan.seed}/fall")
        broker_id = rng.choice(self._cluster.broker_ids)
        numbers = self._cluster.disk_numbers(broker_id)
        if len(numbers) == 1:
            return None
        return Fault(at_ns=0, kind="disk dies and comes back", node=broker_id, disk=f"d{rng.choice(numbers)}")

    def _slow_appends(self) -> None:
        for broker_id, number in self.plan.slow_disks:
            self._cluster.disk(broker_id, number).append_ns_max = self.plan.append_ms_max * NS_PER_MS

    async def _write_once_more(self, client: WorkloadClient, topics: list[str]) -> None:
        """Writes one more record to every partition of these topics."""
        deadline_ns = self.world.now_ns() + round(LAST_WRITES_BOUND_SECONDS * NS_PER_S)
        for topic in topics:
            for index in range(self.plan.workload.partitions):
                produce = await client.produce(topic, index)
                while produce is None or produce.outcome is not Outcome.OK:
                    if self.world.now_ns() > deadline_ns:
                        answer = "no leader is known" if produce is None else produce.error
                        raise NotConverged(f"all is well, but {topic}-{index} takes no record: {answer}")
                    await self.world.sleep(LOOK_SECONDS)
                    produce = await client.produce(topic, index)

    async def _read_positions(self, client: WorkloadClient, workload: Workload) -> None:
        """Reads every committed position once more, for the check that none was lost."""
        deadline_ns = self.world.now_ns() + round(LAST_WRITES_BOUND_SECONDS * NS_PER_S)
        topic = workload.lasting_topics[0]
        for group in workload.groups:
            for index in range(self.plan.workload.partitions):
                while (read := await read_position(client, group, topic, index)).outcome is not Outcome.OK:
                    if self.world.now_ns() > deadline_ns:
                        raise NotConverged(f"all is well, but nobody knows the offsets of {group}: {read.error}")
                    await self.world.sleep(LOOK_SECONDS)

    async def _read_transactions(self, client: WorkloadClient, workload: Workload) -> None:
        """Reads everything that transactional producers have committed, once none of their transactions is open, and their
        positions."""
        topic = workload.transactional_topic
        if topic is None:
            return
        deadline_ns = self.world.now_ns() + round(LAST_WRITES_BOUND_SECONDS * NS_PER_S)

        async def again(what: str) -> None:
            if self.world.now_ns() > deadline_ns:
                raise NotConverged(f"all is well, but {what}")
            await self.world.sleep(LOOK_SECONDS)

        for index in range(self.plan.workload.partitions):
            offset = 0
            while True:
                read = await _answer(read_committed(client, topic, index, offset))
                if read is None:
                    await again(f"{topic}-{index} cannot be read")
                elif read.next_offset > offset:
                    self.history.last_reads.append(read)
                    offset = read.next_offset
                elif offset < read.high_watermark:
                    await again(f"a transaction is open in {topic}-{index} at offset {offset}")
                else:
                    break
        for producer in workload.transactional_producers:
            while (position := await _answer(producer.read_position(client))) is None:
                await again(f"nobody knows the position of {producer.client.name}")
            self.history.last_positions[producer.client.name] = position

    async def _create_on_a_settled_cluster(self, group: asyncio.TaskGroup) -> None:
        """Creates a topic with one partition for each disk of the cluster, and checks that its replicas are spread evenly
        over the disks."""
        client = WorkloadClient(self._cluster, self.history, "client-placement", group)
        created = await client.create_topic(PLACED_TOPIC, partitions=self.plan.brokers * self.plan.disks)
        if created.topic_id is None:
            raise NotConverged(f"all is well, but no topic can be created: {created.error}")
        await self._converge()
        await self._checkers.at_quiescence()
        self._checkers.check_spread(created.topic_id)
        client.close()

    async def _break_a_disk(self) -> None:
        """Breaks a disk of the settled cluster for a while, and checks that clients do not wait for it."""
        trial = DiskTrial(self._cluster, self._lab, self.history, PLACED_TOPIC, draw_work(self.plan.seed))
        await trial.run(draw_trouble(self._cluster))
        await self._converge()
        await self._checkers.at_quiescence()

    def _count(self) -> None:
        self.report.acknowledged = len(self.history.acknowledged(acks=ALL))
        self.report.refused = sum(produce.outcome is not Outcome.OK for produce in self.history.produces)

    # --- chaos ---------------------------------------------------------------------------------------------------

    async def _carry_out(self) -> None:
        began_ns = self.world.now_ns()
        end_ns = began_ns + round(CHAOS_SECONDS * NS_PER_S)
        async with asyncio.TaskGroup() as group:
            for fault in self.plan.schedule:
                group.create_task(self._one_fault(fault, began_ns + fault.at_ns, end_ns))
            await self.world.loop.sleep_until(end_ns)
            self._moments.end()

    async def _one_fault(self, drawn: Fault, at_ns: int, end_ns: int) -> None:
        await self.world.loop.sleep_until(at_ns)
        fault = await self._moments.wait(drawn)
        if fault is None:
            # The event that this fault waited for did not come.
            return
        self._untouched.look()
        reason = self._untouched.why_not(fault)
        if reason is not None:
            self.report.withheld += 1
            self._lab.note("withheld", fault=str(fault), reason=reason)
            return
        self.report.faults.append(str(fault))
        self._untouched.begin(fault)
        self._lab.apply(fault)
        await self.world.loop.sleep_until(min(self.world.now_ns() + fault.duration_ns, end_ns))
        await self._lab.mend(fault)
        self._untouched.end(fault)

    async def _watch(self) -> None:
        while not self._is_over:
            self._untouched.look()
            await self.world.sleep(LOOK_SECONDS)

    # --- refusal -------------------------------------------------------------------------------------------------

    async def _lose_a_partition(self, topic: str) -> None:
        """Loses the disks of all in-sync replicas of one partition at the same moment. This partition must stay without a
        leader, even when all brokers are healthy again. Every other partition that kept an in-sync replica must come
        back. Below metadata.version 3.7-IV2 no broker can report that a disk came back empty."""
        part = self._cluster.partition(topic, 0)
        self._is_refusing = True
        lost = {(member, part.directory(member)) for member in part.isr}
        for topic_id, described in self._cluster.state.topics.items():
            for index, each in described.partitions.items():
                # With unclean elections such a partition gets a leader again, but its records are gone.
                if all((member, each.directory(member)) in lost for member in each.isr):
                    self._lost[TopicIdPartition(topic_id, index)] = None
        await self._lab.lose_disks({member: self._cluster.disk_of(member, part.directory(member)) for member in part.isr})
        await self._converge()
        await self.world.sleep(REFUSAL_SECONDS)
        for topic_id, described in self._cluster.state.topics.items():
            for index, after in described.partitions.items():
                if not after.has_leader:
                    self._lost[TopicIdPartition(topic_id, index)] = None
        after = self._cluster.partition(topic, 0)
        if after.has_leader:
            raise InvariantViolated("I14", f"{topic}-0 lost every disk in sync, and broker {after.leader} leads it")
        await self._checkers.at_quiescence()

    # --- revival -------------------------------------------------------------------------------------------------

    async def _revive_lost_replicas(self, group: asyncio.TaskGroup) -> None:
        """Creates a topic with unclean elections while no disk has room. Its leaders report LOST and are elected again,
        over and over, until there is room. Then its partitions must have leaders and take records like any other."""
        disks = [
            self._cluster.disk(broker_id, number)
            for broker_id in self._cluster.broker_ids
            for number in self._cluster.disk_numbers(broker_id)
        ]
        for disk in disks:
            # Existing logs can still grow, but the free space is below the floor for new replicas.
            disk.fill(ROOM_BELOW_FLOOR)
        await self.world.sleep(PROBED_SECONDS)
        client = WorkloadClient(self._cluster, self.history, "client-revival", group)
        created = await client.create_topic(
            REVIVED_TOPIC,
            partitions=self.plan.workload.partitions,
            replication_factor=1,
            unclean_leader_election_enable="true",
        )
        assert created.outcome is Outcome.OK, f"{REVIVED_TOPIC}: {created.error}"
        await self.world.until(
            lambda: any(part.leader_epoch > 1 for part in self._cluster.partitions(REVIVED_TOPIC).values())
        )
        for disk in disks:
            disk.free_space()
        await self._converge()
        await self._write_once_more(client, [REVIVED_TOPIC])
        client.close()
        await self._checkers.at_quiescence()

    # --- outgrowth -----------------------------------------------------------------------------------------------

    async def _outgrow_every_node(self) -> None:
        """Finalizes a feature level that no node knows, as another release might. Every broker exits, and exits again when
        it is restarted. The active controller keeps running, because it does not replay records that it has appended itself.
        It exits when it reads its log at its next start. If a metadata snapshot is due just then, it reads that part of the
        log for it and exits at once. A broker that has not fetched the record by then never will."""
        rng = random.Random(f"{self.plan.seed}/outgrowth/level")
        feature, level = rng.choice(UNKNOWN_LEVELS)
        self._cluster.finalize_feature(feature, level)
        await self._until_ended(self._cluster.broker_ids, feature)
        if not self._cluster.env(CONTROLLER_ID).is_dead:
            for broker_id in self._cluster.broker_ids:
                self._cluster.start_node(broker_id)
            await self._until_ended(self._cluster.broker_ids, feature)
        if not self._cluster.env(CONTROLLER_ID).is_dead:
            self._cluster.crash(CONTROLLER_ID)
            self._cluster.start_node(CONTROLLER_ID)
        await self._until_ended([CONTROLLER_ID], feature)

    async def _until_ended(self, node_ids: Sequence[int], feature: str) -> None:
        """Waits until these nodes have exited and checks what they said. Without a controller, brokers may run on."""
        deadline_ns = self.world.now_ns() + round(OUTGROWTH_BOUND_SECONDS * NS_PER_S)
        for node_id in node_ids:
            while not self._cluster.env(node_id).is_dead:
                if self._cluster.env(CONTROLLER_ID).is_dead:
                    return
                if self.world.now_ns() > deadline_ns:
                    name = self._cluster.name(node_id)
                    raise InvariantViolated("I5", f"{name} runs on with a level of {feature} that it does not know")
                await self.world.sleep(LOOK_SECONDS)
            self._check_end(node_id, feature)

    def _check_end(self, node_id: int, feature: str) -> None:
        name, env = self._cluster.name(node_id), self._cluster.env(node_id)
        if env.exit_code != 1 or feature not in self._cluster.last_words(node_id):
            raise InvariantViolated("I5", f"{name} ended with status {env.exit_code} and does not name {feature}")

    async def _elect_what_never_had_a_log(self, levels: LevelChanges) -> None:
        """If a broker crashes between the creation of a partition and that of its log, and is the last one in the ISR, it
        cannot tell a log that was never created from a lost one, because the metadata knew no directories of this broker:
        its registration was older than metadata.version 3.7-IV2. It reports LOST at that level, and an operator has to elect
        a leader (seeds 16289 and 15557). Below that level the operator has to raise it first (seed 16703)."""
        for topic in [*self._cluster.state.topics.values()]:
            for index, part in [*topic.partitions.items()]:
                if not self._has_never_had_a_log(topic, index, part):
                    continue
                if not is_directory_assignment_supported(self._cluster.state.metadata_version):
                    await levels.update(DIRECTORY_ASSIGNMENT_LEVEL, UpgradeType.UPGRADE)
                elif not part.has_leader and all(part.directory(member) == LOST for member in part.isr):
                    await levels.elect_uncleanly(topic.name, index)

    def _has_never_had_a_log(self, topic: Topic, index: int, part: PartitionRegistration) -> bool:
        members = {self._cluster.name(member) for member in part.isr}
        return not any(
            event.name == "log_created"
            and event.node in members
            and (event.fields["topic_id"], event.fields["partition"]) == (topic.id.hex(), f"{topic.name}-{index}")
            for event in self.world.events
        )

    # --- heal and converge ---------------------------------------------------------------------------------------

    async def _heal(self) -> None:
        """Ends all network cuts and restarts the brokers that have directories offline. The faults of the schedule are
        mended by now, but a directory may still fail for what its disk was slow to do."""
        self.world.network.mend()
        while self._is_a_disk_catching_up():
            await self.world.sleep(LOOK_SECONDS)
        for broker_id in self._cluster.broker_ids:
            if self._lab.is_alive(broker_id) and self._cluster.has_lost_directories(broker_id):
                await self._lab.stop(broker_id)

    def _is_a_disk_catching_up(self) -> bool:
        cluster = self._cluster
        return any(
            cluster.disk(broker_id, number).is_catching_up
            for broker_id in cluster.broker_ids
            for number in cluster.disk_numbers(broker_id)
        )

    async def _converge(self, levels: LevelChanges | None = None) -> None:
        began_ns = self.world.now_ns()
        deadline_ns = began_ns + round(CONVERGENCE_BOUND_SECONDS * NS_PER_S)
        while (missing := self._what_is_missing()) is not None:
            if self.world.now_ns() > deadline_ns:
                raise NotConverged(f"{CONVERGENCE_BOUND_SECONDS:.0f} s after the last repair: {missing}")
            # An operator waits for a while first: most partitions without a log get one.
            if levels is not None and self.world.now_ns() - began_ns > OPERATOR_PATIENCE_SECONDS * NS_PER_S:
                await self._elect_what_never_had_a_log(levels)
            await self.world.sleep(LOOK_SECONDS)
        taken = (self.world.now_ns() - began_ns) / NS_PER_S
        self.report.convergence_seconds = max(taken, self.report.convergence_seconds)

    def _what_is_missing(self) -> str | None:
        """Describes the first thing that has not converged yet. Returns None if everything has."""
        cluster = self._cluster
        if not cluster.is_controller_active():
            return "no active controller"
        has_assignments = is_directory_assignment_supported(cluster.state.metadata_version)
        for broker_id, registration in ((id_, cluster.registration(id_)) for id_ in cluster.broker_ids):
            if registration is None or registration.fenced or cluster.env(broker_id).is_dead:
                return f"broker {broker_id} does not run"
            registered = len(cluster.disk_numbers(broker_id)) if has_assignments else 0
            if len(registration.directories) != registered:
                return f"broker {broker_id} has {len(registration.directories)} directories online"
        for topic in cluster.state.topics.values():
            for index, part in topic.partitions.items():
                if not part.has_leader and not cluster.is_writable(part) and self._is_refusing:
                    continue
                if not part.has_leader or set(part.isr) != set(part.replicas):
                    return f"{topic.name}-{index}: leader {part.leader}, ISR {part.isr} of {part.replicas}"
                if part.is_reassigning:
                    return f"{topic.name}-{index} is being reassigned to {part.replicas} without {part.removing_replicas}"
                if has_assignments and any(is_reserved(directory_id) for directory_id in part.directories):
                    return f"{topic.name}-{index} is not assigned to a directory everywhere"
        return None


class NotConverged(AssertionError):
    """The cluster has not converged within the time limit, although everything is repaired."""


async def _answer(asked: Awaitable[Answer | None]) -> Answer | None:
    """Returns the answer, or None if there was none."""
    try:
        return await asked
    except ChannelError:
        return None
