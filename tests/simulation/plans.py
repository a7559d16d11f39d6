"""Draws a plan from a seed before the run: the cluster, the clients and the whole schedule of faults.

Core of the tests. A plan is plain data and identical on every machine, so a part of its schedule can be run again. If a
fault waits for an event, the plan only names the event; the time of the fault depends on the run.
"""

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from common.configuration.server import RACK_AWARE_SELECTOR
from common.metadata.metadata_version import (
    DEFAULT_LEVEL,
    DIRECTORY_ASSIGNMENT_LEVEL,
    EPOCH_BUMP_TRANSACTION_VERSION,
    FLEXIBLE_RECORDS_TRANSACTION_VERSION,
    FURTHER_FEATURES_LEVEL,
    LATEST_LEVEL,
    is_directory_assignment_supported,
    level_name,
)
from common.time_units import NS_PER_S
from tests.simulation.cluster import CONTROLLER_ID, INTERNAL_SEGMENT_BYTES
from tests.simulation.faults import CLOCK_JUMPS, FIRST_CLIENT_ID, KINDS, METADATA, Fault, Target
from tests.simulation.moments import AMOUNT_AT_ONCE_AT_THE_TARGET, HALF_COMPACTED, HALF_SWAPPED
from tests.simulation.upgrades import Rise
from tests.simulation.workload import WorkloadSettings

CHAOS_SECONDS = 50.0
FAULTS_MAX = 60
SLOW_DISK_RESPONSE_BYTES = "65536"
REFUSAL_SHARE = 0.15
REVIVAL_SHARE = 0.25
OUTGROWTH_SHARE = 0.25
# In this share of the seeds the disk of the metadata log is slow throughout. Every commit takes a second or so, also while
# brokers are dead, which a short fault of that disk would rarely hit.
SLOW_COMMITS_SHARE = 0.1
# In this share of the seeds the producers are idempotent and retry.
IDEMPOTENCE_SHARE = 0.4
# Of the seeds with transactions, these shares have transaction.version 2 and 1.
EPOCH_BUMP_SHARE = 0.4
FLEXIBLE_RECORDS_SHARE = 0.1
# In this share of them, the level also changes during the trouble, up and down.
VERSION_CHANGES_SHARE = 0.25
VERSION_CHANGES_MAX = 4
# In this share of the seeds there is a compacted topic.
COMPACTION_SHARE = 0.3
# In this share of these seeds the internal topics are compacted as well.
INTERNAL_COMPACTION_SHARE = 0.4
# Of the seeds with groups, in this share the members are assigned at intervals (KIP-1263).
ASSIGNMENT_INTERVAL_SHARE = 0.3
# In this share of the seeds consumers read from the follower in their rack (KIP-392).
RACK_SHARE = 0.4
# In this share of the seeds the brokers find old records in the page cache, most of the time.
CACHED_READS_SHARE = 0.3
# In this share of the seeds the level of metadata.version is below that of directory assignment. A broker may have only one
# directory there, and registers none.
LOW_LEVEL_SHARE = 0.09
LOW_LEVELS = (7, DIRECTORY_ASSIGNMENT_LEVEL - 1)
# Of these seeds, this share rises above that level, some of them during the trouble, and some of them fall again afterwards.
RISE_SHARE = 0.9
RISE_IN_TROUBLE_SHARE = 0.5
FALL_SHARE = 0.4
FURTHER_DISKS_MAX = 2
# In this share of the other seeds an operator cordons directories and ends the cordons again (KIP-1066). The level is the
# latest then, because the default one cannot express cordons.
CORDONS_SHARE = 0.15
# In this share of the seeds the logs sync records before they count as written, and in as many from time to time.
FLUSH_SHARE = 0.1
# In this share of the seeds records of two further topics are deleted, and their retention and segments change.
TRIMS_SHARE = 0.2
# In this share of the seeds, except those with a low level, there are topics with unclean elections.
CARELESS_SHARE = 0.2
# In half of them brokers die one after the other in such pauses, so that the last replica in sync is often gone.
DEATHS_SHARE = 0.5
DEATHS_PAUSE_MAX = 6.0
# In this share of the seeds the wall clocks of nodes jump.
CLOCKS_SHARE = 0.15
CLOCK_JUMPS_MAX = 8
# In this share of the seeds the disks of metadata logs run full, that of the controller more often than any other.
FULL_METADATA_SHARE = 0.12
FULL_METADATA_FAULTS_MAX = 4
FULL_CONTROLLER_SHARE = 0.4
# In this share of the seeds an operator throttles replication and moves, and changes the rates.
THROTTLES_SHARE = 0.15
# In this share of the seeds the daemons do their long work in slices of so few items (`small_slices`).
SMALL_SLICES_SHARE = 0.25
SLICE_SIZES = (1, 2, 10)
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

# If replicas move, the appends to some disks may take this long (0: no longer than usual), because the kernel makes writers
# wait. Otherwise hardly any append would be on its way to the disk when a swap begins.
APPEND_MS_CHOICES = (0, 10, 30)
SLOW_DISK_SHARE = 0.5

# If replicas move, this share of the seeds also has faults that a schedule drawn at random hardly ever has: a broker with a
# move in progress does not find the controller for longer than its session, or a broker ends between the acknowledgement of
# an assignment and the swap, or in the middle of a swap.
LOST_MOVER_SHARE = 0.2
LOST_MOVER_FAULTS = 4
ACKNOWLEDGED_SHARE = 0.2
ACKNOWLEDGED_FAULTS = 3
ACKNOWLEDGED_KINDS = ("node killed", "power cut")
HALF_SWAP_SHARE = 0.2
HALF_SWAP_FAULTS = 2
# In this share of the seeds with compaction, brokers end in the middle of the swap of a compacted segment.
HALF_COMPACTION_SHARE = 0.5
HALF_COMPACTION_FAULTS = 3
HALF_COMPACTION_KINDS = ("node killed", "power cut")
HALF_SWAP_KINDS = ("disk dead at a restart", "disk dead at a restart", "node killed", "power cut")


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
    slow_disks: tuple[tuple[int, int], ...] = ()
    """The data disks whose appends are slow throughout, each by the broker's id and the number of the disk."""
    append_ms_max: int = 0
    """How long an append to one of these disks may take."""
    level: int = DEFAULT_LEVEL
    """The level of metadata.version with which the cluster is formatted."""
    transaction_version: int = 0
    """The level of transaction.version with which the cluster is formatted. At 2, the producers may use it."""
    transaction_changes: tuple[tuple[int, int], ...] = ()
    """The further levels of transaction.version during the trouble, each with its time. From the first 2 on, the producers
    may use it, also when it has fallen: clients may not have noticed yet."""
    rise: Rise | None = None
    """How the level rises. None: it stays as it is."""
    has_cached_reads: bool = False
    """Whether the disks answer reads of cached pages at once."""
    throttle_pause: float | None = None
    """The pause between two changes of throttles. If None, nothing is throttled."""
    slice_size: int | None = None
    """After how many items a slice of long work ends. None: the daemons decide."""

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.brokers} brokers with {self.disks} disks, "
            f"{self.workload.topics} + {self.workload.passing_topics} topics of {self.workload.partitions} partitions, "
            f"{self.workload.producers} producers, {self.workload.consumers} consumers, {len(self.schedule)} faults"
            + (", and a partition that loses all its disks" if self.refuses else "")
            + (", and a topic that finds no room" if self.revives else "")
            + (", and producers that retry" if self.workload.is_idempotent else "")
            + (", and compaction" if self.workload.compacted_topics else "")
            + (", also of the internal topics" if INTERNAL_SEGMENT_BYTES[0] in self.overrides else "")
            + (", and racks" if self.workload.has_racks else "")
            + (", and replicas that move" if self.workload.move_pause is not None else "")
            + (", and cordons" if self.workload.cordon_pause is not None else "")
            + (", and deletions of records" if self.workload.trim_pause is not None else "")
            + (", and unclean elections" if self.workload.is_careless else "")
            + (f", and {self.workload.groups} groups" if self.workload.groups else "")
            + (
                f", and {self.workload.transactional_producers} in transactions"
                if self.workload.transactional_producers
                else ""
            )
            + (f", and transaction.version {self.transaction_version}" if self.transaction_version else "")
            + (
                f", and transaction.version becomes {', '.join(str(to) for _, to in self.transaction_changes)}"
                if self.transaction_changes
                else ""
            )
            + (", and reads from the page cache" if self.has_cached_reads else "")
            + (", and throttles" if self.throttle_pause is not None else "")
            + (f", and slices of {self.slice_size}" if self.slice_size is not None else "")
            + (", and a feature that nobody knows" if self.outgrows else "")
            + (f", and metadata.version {level_name(self.level)}" if self.level != DEFAULT_LEVEL else "")
            + (f" that rises to {level_name(self.rise.level)}" if self.rise is not None else "")
            + (
                f", and {len(self.slow_disks)} disks with appends of up to {self.append_ms_max} ms"
                if self.slow_disks
                else ""
            )
        )


def draw_plan(seed: int) -> Plan:
    """Returns the plan of a seed, identical on every machine."""
    rng = random.Random(f"{seed}/plan")
    brokers = rng.randint(3, 5)
    disks = rng.randint(1, 5)
    level = _draw_level(random.Random(f"{seed}/level"))
    if not is_directory_assignment_supported(level):
        disks = 1
    cordon_pause = _draw_cordon_pause(random.Random(f"{seed}/cordons"), level)
    if cordon_pause is not None:
        level = LATEST_LEVEL
    move_pause = _draw_move_pause(seed) if disks > 1 else None
    workload = replace(
        _draw_workload(rng),
        move_pause=move_pause,
        reassignment_pause=_draw_reassignment_pause(seed),
        cordon_pause=cordon_pause,
        is_idempotent=random.Random(f"{seed}/idempotence").random() < IDEMPOTENCE_SHARE,
    )
    overrides = _draw_overrides(random.Random(f"{seed}/overrides"))
    _draw_flushes(random.Random(f"{seed}/flushes"), overrides)
    groups = _draw_groups(random.Random(f"{seed}/groups"), overrides)
    if groups:
        _draw_assignment_interval(random.Random(f"{seed}/groups/interval"), overrides)
    transactional = _draw_transactions(random.Random(f"{seed}/transactions"), overrides)
    transaction_version = _draw_transaction_version(random.Random(f"{seed}/versions producer"), transactional, level)
    transaction_changes = _draw_transaction_changes(
        random.Random(f"{seed}/transactions/level"), transactional, level, transaction_version
    )
    workload = replace(
        workload,
        groups=groups,
        transactional_producers=transactional,
        bumps_epochs=transaction_version >= EPOCH_BUMP_TRANSACTION_VERSION,
    )
    workload = _with_compaction(random.Random(f"{seed}/compaction"), workload, overrides)
    if workload.compacted_topics:
        _draw_compaction_of_internals(random.Random(f"{seed}/compaction/internal"), overrides)
    if random.Random(f"{seed}/racks").random() < RACK_SHARE:
        overrides["replica.selector.class"] = RACK_AWARE_SELECTOR
        workload = replace(workload, has_racks=True)
    if is_directory_assignment_supported(level) and random.Random(f"{seed}/careless").random() < CARELESS_SHARE:
        workload = replace(workload, is_careless=True)
    schedule = _draw_schedule(rng, brokers=list(range(1, brokers + 1)), disks=disks)
    if move_pause is not None:
        schedule = _with_faults_of_moves(seed, schedule, overrides, brokers, disks)
    schedule = _with_special_faults(seed, schedule, workload, brokers, disks)
    workload = _with_trims(random.Random(f"{seed}/log start"), workload, overrides)
    slow_disks, append_ms_max = _draw_slow_disks(random.Random(f"{seed}/moves/appends"), brokers, disks, move_pause)
    if slow_disks:
        # A follower that gets a single batch with each answer never catches up there while the producers write.
        overrides["replica.fetch.response.max.bytes"] = SLOW_DISK_RESPONSE_BYTES
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
        slow_disks=slow_disks,
        append_ms_max=append_ms_max,
        level=level,
        transaction_version=transaction_version,
        transaction_changes=transaction_changes,
        rise=_draw_rise(random.Random(f"{seed}/rise"), level),
        has_cached_reads=random.Random(f"{seed}/cached reads").random() < CACHED_READS_SHARE,
        throttle_pause=_draw_throttle_pause(random.Random(f"{seed}/KIP-73")),
        slice_size=_draw_slice_size(random.Random(f"{seed}/slices")),
    )


def _draw_level(rng: random.Random) -> int:
    return rng.randint(*LOW_LEVELS) if rng.random() < LOW_LEVEL_SHARE else DEFAULT_LEVEL


def _draw_slice_size(rng: random.Random) -> int | None:
    return rng.choice(SLICE_SIZES) if rng.random() < SMALL_SLICES_SHARE else None


def _draw_throttle_pause(rng: random.Random) -> float | None:
    return rng.choice([0.3, 2.0]) if rng.random() < THROTTLES_SHARE else None


def _draw_transaction_version(rng: random.Random, producers: int, level: int) -> int:
    if not producers or level < FURTHER_FEATURES_LEVEL:
        return 0
    drawn = rng.random()
    if drawn < EPOCH_BUMP_SHARE:
        return EPOCH_BUMP_TRANSACTION_VERSION
    return FLEXIBLE_RECORDS_TRANSACTION_VERSION if drawn < EPOCH_BUMP_SHARE + FLEXIBLE_RECORDS_SHARE else 0


def _draw_transaction_changes(rng: random.Random, producers: int, level: int, version: int) -> tuple[tuple[int, int], ...]:
    if not producers or level < FURTHER_FEATURES_LEVEL or rng.random() >= VERSION_CHANGES_SHARE:
        return ()
    times = sorted(rng.uniform(0.1, 0.9) for _ in range(rng.randint(1, VERSION_CHANGES_MAX)))
    changes = []
    for at in times:
        version = rng.choice([each for each in range(EPOCH_BUMP_TRANSACTION_VERSION + 1) if each != version])
        changes.append((round(at * CHAOS_SECONDS * NS_PER_S), version))
    return tuple(changes)


def _draw_rise(rng: random.Random, level: int) -> Rise | None:
    if is_directory_assignment_supported(level) or rng.random() > RISE_SHARE:
        return None
    is_in_trouble = rng.random() < RISE_IN_TROUBLE_SHARE
    return Rise(
        level=rng.randint(DIRECTORY_ASSIGNMENT_LEVEL, LATEST_LEVEL),
        at_ns=round(rng.uniform(0.1, 0.8) * CHAOS_SECONDS * NS_PER_S) if is_in_trouble else None,
        further_disks=rng.randint(0, FURTHER_DISKS_MAX),
        falls=rng.random() < FALL_SHARE,
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


def _draw_cordon_pause(rng: random.Random, level: int) -> float | None:
    return rng.choice([0.5, 3.0]) if level == DEFAULT_LEVEL and rng.random() < CORDONS_SHARE else None


# With these, a member of the consumer protocol is missed as soon as one of the classic protocol.
SHORT_CONSUMER_SESSIONS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
}


def _draw_flushes(rng: random.Random, overrides: dict[str, str]) -> None:
    if rng.random() < FLUSH_SHARE:
        overrides["log.flush.interval.messages"] = rng.choice(["1", "10"])
    if rng.random() < FLUSH_SHARE:
        overrides["log.flush.scheduler.interval.ms"] = rng.choice(["100", "1000"])


def _draw_groups(rng: random.Random, overrides: dict[str, str]) -> int:
    """Draws the number of groups, and settings with which a coordinator changes and a group rebalances several times."""
    groups = rng.choice([0, 0, 1, 2])
    if groups:
        overrides["group.initial.rebalance.delay.ms"] = str(rng.choice([0, 500]))
        overrides["group.min.session.timeout.ms"] = "1000"
        overrides.update(SHORT_CONSUMER_SESSIONS)
        overrides["offsets.commit.timeout.ms"] = str(rng.choice([500, 5_000]))
        overrides["offsets.topic.num.partitions"] = str(rng.choice([1, 3]))
    return groups


def _draw_assignment_interval(rng: random.Random, overrides: dict[str, str]) -> None:
    if rng.random() < ASSIGNMENT_INTERVAL_SHARE:
        overrides["group.consumer.assignment.interval.ms"] = rng.choice(["300", "1000", "3000"])


def _draw_transactions(rng: random.Random, overrides: dict[str, str]) -> int:
    """Draws the number of transactional producers, and how many partitions their coordinators share."""
    producers = rng.choice([0, 0, 1, 3])
    if producers:
        overrides["transaction.state.log.num.partitions"] = str(rng.choice([1, 3]))
        overrides.setdefault("offsets.topic.num.partitions", "1")
    return producers


def _with_compaction(rng: random.Random, workload: WorkloadSettings, overrides: dict[str, str]) -> WorkloadSettings:
    if rng.random() > COMPACTION_SHARE:
        return workload
    overrides["log.cleaner.backoff.ms"] = str(rng.choice([100, 1_000]))
    overrides["log.cleaner.io.buffer.size"] = str(rng.choice([300, 524_288]))
    # A map of few keys makes several rounds of a compaction, a low rate makes it long.
    overrides["log.cleaner.dedupe.buffer.size"] = str(rng.choice([1_000, 134_217_728]))
    overrides["log.cleaner.io.max.bytes.per.second"] = str(rng.choice([5_000, 1_000_000]))
    return replace(workload, compacted_topics=rng.randint(1, 2), compacted_segment_bytes=rng.choice([300, 3_000]))


def _draw_compaction_of_internals(rng: random.Random, overrides: dict[str, str]) -> None:
    if rng.random() < INTERNAL_COMPACTION_SHARE:
        overrides.update(dict.fromkeys(INTERNAL_SEGMENT_BYTES, rng.choice(["2000", "20000"])))


def _with_trims(rng: random.Random, workload: WorkloadSettings, overrides: dict[str, str]) -> WorkloadSettings:
    if rng.random() > TRIMS_SHARE:
        return workload
    overrides["log.retention.check.interval.ms"] = str(rng.choice([200, 2_000]))
    overrides["log.flush.start.offset.checkpoint.interval.ms"] = str(rng.choice([1_000, 60_000]))
    overrides.setdefault("log.segment.delete.delay.ms", str(rng.choice([0, 500, 60_000])))
    return replace(workload, trim_pause=rng.choice([0.2, 1.0]))


def _with_faults_of_moves(
    seed: int, schedule: tuple[Fault, ...], overrides: dict[str, str], brokers: int, disks: int
) -> tuple[Fault, ...]:
    """Lets some faults wait for an event of a move, and adds those that are rare otherwise."""
    rng = random.Random(f"{seed}/moves/faults")
    # With a short delay, -delete folders are removed during the run. With a long delay, they stay until its end.
    overrides["log.segment.delete.delay.ms"] = str(rng.choice([500, 5_000, 60_000]))
    schedule = tuple(_maybe_at_a_move(rng, fault) for fault in schedule)
    rare = _draw_rare_faults_of_moves(random.Random(f"{seed}/moves/standing"), brokers, disks)
    rare += _draw_ends_before_swaps(random.Random(f"{seed}/moves/acknowledged"), brokers, disks)
    return _in_order(schedule, rare)


def _with_special_faults(
    seed: int, schedule: tuple[Fault, ...], workload: WorkloadSettings, brokers: int, disks: int
) -> tuple[Fault, ...]:
    """Adds the faults that only some seeds have, because of their workload or by chance."""
    if workload.compacted_topics:
        ends = _draw_ends_in_compactions(random.Random(f"{seed}/compaction/faults"), brokers, disks)
        schedule = _in_order(schedule, ends)
    if workload.is_careless:
        schedule = _with_deaths(random.Random(f"{seed}/careless/deaths"), schedule, brokers)
    schedule = _with_clock_jumps(random.Random(f"{seed}/clock jumps"), schedule, list(range(1, brokers + 1)))
    schedule = _with_full_metadata_disks(random.Random(f"{seed}/full metadata"), schedule, brokers)
    return _with_slow_commits(random.Random(f"{seed}/slow commits"), schedule)


def _in_order(schedule: Iterable[Fault], further: Iterable[Fault]) -> tuple[Fault, ...]:
    return tuple(sorted((*schedule, *further), key=lambda fault: fault.at_ns))


def _maybe_at_a_move(rng: random.Random, fault: Fault) -> Fault:
    if not fault.moment or rng.random() > MOVE_MOMENT_SHARE:
        return fault
    return replace(fault, moment=rng.choice(MOVE_MOMENTS))


def _draw_rare_faults_of_moves(rng: random.Random, brokers: int, disks: int) -> list[Fault]:
    drawn: list[Fault] = []
    if rng.random() < LOST_MOVER_SHARE:
        drawn += [_draw_fault_at_once(rng, "link cut", "move_caught_up", brokers, disks) for _ in range(LOST_MOVER_FAULTS)]
    if rng.random() < HALF_SWAP_SHARE:
        drawn += [
            _draw_fault_at_once(rng, rng.choice(HALF_SWAP_KINDS), HALF_SWAPPED, brokers, disks)
            for _ in range(HALF_SWAP_FAULTS)
        ]
    return drawn


def _draw_ends_before_swaps(rng: random.Random, brokers: int, disks: int) -> list[Fault]:
    if rng.random() > ACKNOWLEDGED_SHARE:
        return []
    return [
        _draw_fault_at_once(rng, rng.choice(ACKNOWLEDGED_KINDS), "assignments_acknowledged", brokers, disks)
        for _ in range(ACKNOWLEDGED_FAULTS)
    ]


def _draw_ends_in_compactions(rng: random.Random, brokers: int, disks: int) -> list[Fault]:
    if rng.random() > HALF_COMPACTION_SHARE:
        return []
    return [
        _draw_fault_at_once(rng, rng.choice(HALF_COMPACTION_KINDS), HALF_COMPACTED, brokers, disks)
        for _ in range(HALF_COMPACTION_FAULTS)
    ]


def _draw_slow_disks(
    rng: random.Random, brokers: int, disks: int, move_pause: float | None
) -> tuple[tuple[tuple[int, int], ...], int]:
    """Draws the disks whose appends are slow, and how long one may take in milliseconds."""
    append_ms_max = 0 if move_pause is None else rng.choice(APPEND_MS_CHOICES)
    if not append_ms_max:
        return (), 0
    every = [(broker_id, number) for broker_id in range(1, brokers + 1) for number in range(1, disks + 1)]
    return tuple(disk for disk in every if rng.random() < SLOW_DISK_SHARE), append_ms_max


def _draw_fault_at_once(rng: random.Random, kind: str, moment: str, brokers: int, disks: int) -> Fault:
    """Draws a fault that hits the broker of the event, at once and for long enough that it is fenced."""
    return Fault(
        at_ns=round(rng.uniform(0, 0.8 * CHAOS_SECONDS) * NS_PER_S),
        kind=kind,
        node=rng.randint(1, brokers),
        peer=CONTROLLER_ID if KINDS[kind].target is Target.LINK else 0,
        disk=f"d{rng.randint(1, disks)}" if KINDS[kind].target is Target.ANY_DISK else "",
        duration_ns=round(rng.uniform(4.0, 10.0) * NS_PER_S),
        amount=AMOUNT_AT_ONCE_AT_THE_TARGET,
        by_force=True,
        moment=moment,
        is_there=True,
    )


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
    kinds = [kind for kind in KINDS if not KINDS[kind].is_rare and (disks > 1 or KINDS[kind].target is not Target.TWO_DISKS)]
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


def _with_clock_jumps(rng: random.Random, schedule: tuple[Fault, ...], brokers: list[int]) -> tuple[Fault, ...]:
    if rng.random() > CLOCKS_SHARE:
        return schedule
    times = [round(rng.uniform(0, 0.9 * CHAOS_SECONDS) * NS_PER_S) for _ in range(rng.randint(1, CLOCK_JUMPS_MAX))]
    jumps = [_draw_fault(rng, CLOCK_JUMPS, at_ns, brokers=brokers, victims=brokers, disks=1) for at_ns in times]
    return _in_order(schedule, jumps)


def _with_full_metadata_disks(rng: random.Random, schedule: tuple[Fault, ...], brokers: int) -> tuple[Fault, ...]:
    if rng.random() > FULL_METADATA_SHARE:
        return schedule
    full = [
        Fault(
            at_ns=round(rng.uniform(0, 0.7 * CHAOS_SECONDS) * NS_PER_S),
            kind="disk full",
            node=CONTROLLER_ID if rng.random() < FULL_CONTROLLER_SHARE else rng.randint(1, brokers),
            disk=METADATA,
            duration_ns=round(rng.uniform(0.5, 12.0) * NS_PER_S),
            amount=rng.randint(1, 1000),
            by_force=rng.random() < 0.5,
        )
        for _ in range(rng.randint(1, FULL_METADATA_FAULTS_MAX))
    ]
    others = tuple(fault for fault in schedule if not any(fault.is_where(each) for each in full))
    return _in_order(others, full)


def _with_deaths(rng: random.Random, schedule: tuple[Fault, ...], brokers: int) -> tuple[Fault, ...]:
    if rng.random() > DEATHS_SHARE:
        return schedule
    deaths: list[Fault] = []
    at = rng.uniform(0, DEATHS_PAUSE_MAX)
    while at < 0.8 * CHAOS_SECONDS:
        duration_ns = round(rng.uniform(1.0, 9.0) * NS_PER_S)
        deaths.append(
            Fault(at_ns=round(at * NS_PER_S), kind="node killed", node=rng.randint(1, brokers), duration_ns=duration_ns)
        )
        at += rng.uniform(0.5, DEATHS_PAUSE_MAX)
    return _in_order(schedule, deaths)


def _with_slow_commits(rng: random.Random, schedule: tuple[Fault, ...]) -> tuple[Fault, ...]:
    if rng.random() > SLOW_COMMITS_SHARE:
        return schedule
    slow = Fault(
        at_ns=0,
        kind="disk slow",
        node=CONTROLLER_ID,
        disk=METADATA,
        duration_ns=round(CHAOS_SECONDS * NS_PER_S),
        amount=rng.randint(600, 1000),
    )
    return (slow, *(fault for fault in schedule if not fault.is_where(slow)))


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
