"""Draws a plan from a seed before the run: the cluster, the clients and the whole schedule of faults.

Core of the tests. A plan is plain data and identical on every machine, so a part of its schedule can be run again. If a
fault waits for an event, the plan only names the event; the time of the fault depends on the run.
"""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from common.time_units import NS_PER_S
from tests.simulation.cluster import CONTROLLER_ID
from tests.simulation.faults import FIRST_CLIENT_ID, KINDS, METADATA, Fault, Target
from tests.simulation.workload import WorkloadSettings

CHAOS_SECONDS = 50.0
FAULTS_MAX = 60
REFUSAL_SHARE = 0.15
REVIVAL_SHARE = 0.25
OUTGROWTH_SHARE = 0.25
# This share of the faults waits for an event. A randomly chosen time would rarely hit the middle of an operation.
MOMENT_SHARE = 0.35
MOMENTS = (
    "assignment_queued",
    "broker_fenced",
    "broker_registered",
    "broker_running",
    "broker_unfenced",
    "isr_change_proposed",
    "isr_changed",
    "log_created",
    "log_dir_offline",
    "log_dir_reported_offline",
    "logs_loaded",
    "metadata_snapshot_written",
    "reassignment_completed",
    "reassignments_altered",
    "topic_created",
    "topic_deleted",
)

# If replicas move, this share of these faults waits for an event of a move.
MOVE_MOMENT_SHARE = 0.5
MOVE_MOMENTS = ("move_started", "move_caught_up", "assignments_acknowledged", "move_finished")


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a seed decides before the run."""

    seed: int
    brokers: int
    disks: int
    workload: WorkloadSettings
    overrides: Mapping[str, str]
    schedule: tuple[Fault, ...]
    refuses: bool = False
    """Whether, after the cluster has converged, one partition loses the disks of all its in-sync replicas. No broker may
    lead it then."""
    revives: bool = False
    """Whether, after the cluster has converged, a topic with unclean elections is created while no disk has room for it."""
    outgrows: bool = False
    """Whether, at the very end, a feature level that no node knows is finalized."""

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.brokers} brokers with {self.disks} disks, "
            f"{self.workload.topics} + {self.workload.passing_topics} topics of {self.workload.partitions} partitions, "
            f"{self.workload.producers} producers, {self.workload.consumers} consumers, {len(self.schedule)} faults"
            + (", and a partition that loses all its disks" if self.refuses else "")
            + (", and a topic that finds no room" if self.revives else "")
            + (", and replicas that move" if self.workload.move_pause is not None else "")
            + (", and a feature that nobody knows" if self.outgrows else "")
        )


def draw_plan(seed: int) -> Plan:
    """Returns the plan of a seed, identical on every machine."""
    rng = random.Random(f"{seed}/plan")
    brokers = rng.randint(3, 5)
    disks = rng.randint(1, 5)
    move_pause = _draw_move_pause(seed) if disks > 1 else None
    workload = replace(_draw_workload(rng), move_pause=move_pause, reassignment_pause=_draw_reassignment_pause(seed))
    overrides = _draw_overrides(random.Random(f"{seed}/overrides"))
    schedule = _draw_schedule(rng, brokers=list(range(1, brokers + 1)), disks=disks)
    if move_pause is not None:
        moves_rng = random.Random(f"{seed}/moves/faults")
        # With a short delay, -delete folders are removed during the run. With a long delay, they stay until its end.
        overrides["log.segment.delete.delay.ms"] = str(moves_rng.choice([500, 5_000, 60_000]))
        schedule = tuple(_maybe_at_a_move(moves_rng, fault) for fault in schedule)
    return Plan(
        seed=seed,
        brokers=brokers,
        disks=disks,
        workload=workload,
        overrides=overrides,
        schedule=schedule,
        refuses=rng.random() < REFUSAL_SHARE,
        outgrows=random.Random(f"{seed}/outgrowth").random() < OUTGROWTH_SHARE,
        # If a broker has a single directory, the controller places the replica, and no broker checks the free space.
        revives=disks > 1 and random.Random(f"{seed}/revival").random() < REVIVAL_SHARE,
    )


def _draw_overrides(rng: random.Random) -> dict[str, str]:
    """Draws settings that make rare things happen within a minute: rolled segments, snapshots, directory failure
    timeouts."""
    drawn = {
        "log.segment.bytes": rng.choice([25_000, 100_000, 1 << 30]),
        "metadata.log.max.record.bytes.between.snapshots": rng.choice([3_000, 30_000, 20 << 20]),
        "log.dir.failure.timeout.ms": rng.choice([500, 2_000, 30_000]),
        "log.flush.offset.checkpoint.interval.ms": rng.choice([1_000, 5_000, 60_000]),
        "replica.high.watermark.checkpoint.interval.ms": rng.choice([1_000, 5_000]),
    }
    return {key: str(value) for key, value in drawn.items()}


def _draw_move_pause(seed: int) -> float | None:
    return random.Random(f"{seed}/moves").choice([None, 0.2, 1.0])


def _draw_reassignment_pause(seed: int) -> float | None:
    return random.Random(f"{seed}/reassignments").choice([None, None, 0.5, 2.0, 8.0])


def _maybe_at_a_move(rng: random.Random, fault: Fault) -> Fault:
    if not fault.moment or rng.random() > MOVE_MOMENT_SHARE:
        return fault
    return replace(fault, moment=rng.choice(MOVE_MOMENTS))


def _draw_workload(rng: random.Random) -> WorkloadSettings:
    return WorkloadSettings(
        producers=rng.randint(1, 3),
        consumers=rng.randint(1, 2),
        topics=rng.randint(1, 3),
        passing_topics=rng.choice([0, 1, 1, 2]),
        partitions=rng.randint(1, 4),
        produce_pause=rng.choice([0.03, 0.1, 0.3]),
        poll_pause=rng.choice([0.05, 0.2]),
        topic_pause=rng.choice([1.0, 5.0, 15.0]),
        acks_one_share=rng.choice([0.0, 0.2, 0.5]),
        value_bytes_max=rng.choice([10, 600, 5_000]),
    )


def _draw_schedule(rng: random.Random, *, brokers: list[int], disks: int) -> tuple[Fault, ...]:
    kinds = [kind for kind in KINDS if disks > 1 or KINDS[kind].target is not Target.TWO_DISKS]
    mix = {kind: rng.uniform(0.2, 1.0) for kind in kinds if rng.random() < 0.4} or {rng.choice(kinds): 1.0}
    # Some seeds have many faults at once, others let each fault play out.
    mean_gap = math.exp(rng.uniform(math.log(0.4), math.log(8.0)))
    # Some seeds hit one broker only.
    victims = [rng.choice(brokers)] if rng.random() < 0.2 else brokers
    schedule: list[Fault] = []
    at = rng.expovariate(1 / mean_gap)
    while at < CHAOS_SECONDS and len(schedule) < FAULTS_MAX:
        kind = rng.choices(list(mix), weights=list(mix.values()))[0]
        fault = _draw_fault(rng, kind, round(at * NS_PER_S), brokers=brokers, victims=victims, disks=disks)
        if not any(_is_in_the_way(earlier, fault) for earlier in schedule):
            schedule.append(fault)
        at += rng.expovariate(1 / mean_gap)
    return tuple(schedule)


def _is_in_the_way(earlier: Fault, fault: Fault) -> bool:
    """Whether the earlier fault is still active in the same place when the other one begins."""
    return fault.at_ns <= earlier.at_ns + earlier.duration_ns and fault.is_where(earlier)


def _draw_fault(rng: random.Random, kind: str, at_ns: int, *, brokers: list[int], victims: list[int], disks: int) -> Fault:
    """Draws the target and the duration of a fault of this kind. The fault ends before the chaos phase does."""
    described = KINDS[kind]
    shortest, longest = described.seconds
    # Make short faults as likely as long ones: different bugs need different durations.
    drawn = rng.uniform(shortest, longest) if rng.random() < 0.5 else rng.uniform(shortest, min(longest, shortest + 1.5))
    node, disk, other_disk, peer = rng.choice(victims), "", "", 0
    match described.target:
        case Target.DATA_DISK:
            disk = f"d{rng.randint(1, disks)}"
        case Target.ANY_DISK:
            disk = f"d{rng.randint(1, disks)}" if rng.random() < 0.85 else METADATA
            if disk == METADATA and rng.random() < 0.3:
                node = CONTROLLER_ID
        case Target.TWO_DISKS:
            disk, other_disk = (f"d{number}" for number in rng.sample(range(1, max(2, disks) + 1), 2))
        case Target.TWO_BROKERS:
            peer = rng.choice([other for other in brokers if other != node])
            disk, other_disk = (f"d{rng.randint(1, disks)}" for _ in range(2))
        case Target.NODE:
            node = CONTROLLER_ID if rng.random() < 0.2 else node
        case Target.LINK:
            others = (CONTROLLER_ID, CONTROLLER_ID, *victims, FIRST_CLIENT_ID)
            peer = rng.choice([other for other in others if other != node])
            if rng.random() < 0.5:
                node, peer = peer, node
        case Target.NETWORK:
            node = 0
    left_ns = max(0, round(CHAOS_SECONDS * NS_PER_S) - at_ns)
    has_moment = rng.random() < MOMENT_SHARE
    return Fault(
        at_ns=at_ns,
        kind=kind,
        node=node,
        disk=disk,
        duration_ns=min(round(drawn * NS_PER_S), left_ns),
        peer=peer,
        other_disk=other_disk,
        amount=rng.randint(1, 1000),
        by_force=rng.random() < 0.5,
        moment=rng.choice(MOMENTS) if has_moment else "",
        is_there=has_moment and rng.random() < 0.7,
    )
