"""How far reassignments and moves between directories have come, in the words of Kafka's tool (core, KIP-113).

A replica with a directory to go to is in one of five states. Of these, only COMPLETED and CANCELLED are done. Throttles wait
for the others: also a replica whose directory or broker is missing may go on with its move once that is back.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from admin.log_dirs import ReplicaLogDirInfo
from admin.partitions import TopicPartition, TopicPartitionReplica
from admin.reassignments import PartitionReassignment


class Move(Enum):
    """The state of a replica that should be in a certain directory."""

    COMPLETED = auto()
    ACTIVE = auto()
    """It moves, to that directory or to another one."""
    CANCELLED = auto()
    """It is elsewhere and does not move."""
    MISSING_LOG_DIR = auto()
    """No online directory of its broker has it."""
    MISSING_REPLICA = auto()
    """Its broker does not answer for it."""


@dataclass(frozen=True, slots=True)
class MoveState:
    move: Move
    info: ReplicaLogDirInfo
    target: str

    @property
    def is_done(self) -> bool:
        return self.move in (Move.COMPLETED, Move.CANCELLED)


def move_state(target: str, info: ReplicaLogDirInfo | None) -> MoveState:
    """Returns the state of a replica; `info` is None if its broker is not in the cluster."""
    if info is None:
        return MoveState(Move.MISSING_REPLICA, ReplicaLogDirInfo(), target)
    if info.current_log_dir is None:
        return MoveState(Move.MISSING_LOG_DIR, info, target)
    if info.future_log_dir is not None:
        return MoveState(Move.ACTIVE, info, target)
    return MoveState(Move.COMPLETED if info.current_log_dir == target else Move.CANCELLED, info, target)


def move_lines(states: Mapping[TopicPartitionReplica, MoveState]) -> list[str]:
    """Returns a line for each replica, sorted by broker and partition."""
    return [_move_line(replica, states[replica]) for replica in sorted(states, key=by_broker)]


def by_broker(replica: TopicPartitionReplica) -> tuple[int, str, int]:
    """Kafka's order of replicas."""
    return replica.broker_id, replica.topic, replica.partition


def _move_line(replica: TopicPartitionReplica, state: MoveState) -> str:
    partition, broker = f"Partition {replica.topic}-{replica.partition}", f"broker {replica.broker_id}"
    match state.move:
        case Move.COMPLETED:
            return f"Reassignment of replica {replica} completed successfully."
        case Move.ACTIVE if state.info.future_log_dir == state.target:
            return f"Reassignment of replica {replica} is still in progress."
        case Move.ACTIVE:
            moving_to = state.info.future_log_dir
            return f"{partition} on {broker} is being moved to log dir {moving_to} instead of {state.target}."
        case Move.CANCELLED:
            return f"{partition} on {broker} is not being moved from log dir {state.info.current_log_dir} to {state.target}."
        case Move.MISSING_LOG_DIR:
            return (
                f"{partition} is not found in any live log dir on {broker}. There is likely an offline log directory on the "
                "broker."
            )
        case Move.MISSING_REPLICA:
            return f"{partition} cannot be found in any live log directory on {broker}."


def partition_lines(
    targets: Mapping[TopicPartition, Sequence[int]],
    ongoing: Mapping[TopicPartition, PartitionReassignment],
    current: Mapping[TopicPartition, Sequence[int]],
) -> list[str]:
    """Returns a headline and a line for each partition, sorted. A partition without a current assignment does not exist."""
    lines = ["Status of partition reassignment:"]
    for partition, target in sorted(targets.items()):
        replicas = list(current.get(partition, ()))
        if partition in ongoing:
            lines.append(f"Reassignment of partition {partition} is still in progress.")
        elif replicas == list(target):
            lines.append(f"Reassignment of partition {partition} is completed.")
        else:
            lines.append(
                f"There is no active reassignment of partition {partition}, but replica set is "
                f"{','.join(map(str, replicas))} rather than {','.join(map(str, target))}."
            )
    return lines


def ongoing_lines(ongoing: Mapping[TopicPartition, PartitionReassignment]) -> list[str]:
    """Returns what --list prints."""
    if not ongoing:
        return ["No partition reassignments found."]
    return ["Current partition reassignments:", *(_ongoing_line(*each) for each in sorted(ongoing.items()))]


def _ongoing_line(partition: TopicPartition, reassignment: PartitionReassignment) -> str:
    adding, removing = reassignment.adding_replicas, reassignment.removing_replicas
    line = f"{partition}: replicas: {','.join(map(str, reassignment.replicas))}."
    line += f" adding: {','.join(map(str, adding))}." if adding else ""
    return line + (f" removing: {','.join(map(str, removing))}." if removing else "")
