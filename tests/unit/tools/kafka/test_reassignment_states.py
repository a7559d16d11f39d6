"""Tests the states of moves and reassignments, and Kafka's line for each."""

from admin.log_dirs import ReplicaLogDirInfo
from admin.partitions import TopicPartition, TopicPartitionReplica
from admin.reassignments import PartitionReassignment
from tools.kafka.reassignment_states import Move, move_lines, move_state, ongoing_lines, partition_lines


def test_a_replica_is_in_one_of_five_states() -> None:
    """All for the target /b, sorted by broker first. The state ACTIVE has two lines: towards the target, and elsewhere."""
    infos = {
        TopicPartitionReplica("u", 0, 1): ReplicaLogDirInfo("/a", 0, "/b", 5),
        TopicPartitionReplica("t", 0, 2): ReplicaLogDirInfo("/b"),
        TopicPartitionReplica("t", 1, 1): ReplicaLogDirInfo("/a", 0, "/c", 5),
        TopicPartitionReplica("t", 2, 1): ReplicaLogDirInfo("/a"),
        TopicPartitionReplica("t", 3, 1): ReplicaLogDirInfo(),
        TopicPartitionReplica("t", 4, 1): None,
    }
    states = {replica: move_state("/b", info) for replica, info in infos.items()}
    assert [state.move for state in states.values()] == [
        Move.ACTIVE,
        Move.COMPLETED,
        Move.ACTIVE,
        Move.CANCELLED,
        Move.MISSING_LOG_DIR,
        Move.MISSING_REPLICA,
    ]
    assert move_lines(states) == [
        "Partition t-1 on broker 1 is being moved to log dir /c instead of /b.",
        "Partition t-2 on broker 1 is not being moved from log dir /a to /b.",
        "Partition t-3 is not found in any live log dir on broker 1. There is likely an offline log directory on the "
        "broker.",
        "Partition t-4 cannot be found in any live log directory on broker 1.",
        "Reassignment of replica u-0-1 is still in progress.",
        "Reassignment of replica t-0-2 completed successfully.",
    ]


def test_a_move_back_to_the_current_directory_is_not_completed_while_the_replica_moves_away() -> None:
    state = move_state("/a", ReplicaLogDirInfo("/a", 0, "/b", 5))
    assert state.move is Move.ACTIVE


def test_a_partition_is_completed_in_progress_or_elsewhere() -> None:
    """The order of the replicas counts: the first one is the preferred leader. A partition that does not exist has none."""
    t = [TopicPartition("t", index) for index in range(4)]
    targets = {t[3]: (1, 2), t[1]: (1, 2), t[0]: (1, 2), t[2]: (1, 2)}
    ongoing = {t[1]: PartitionReassignment((1, 2, 3), (2,), (3,))}
    current = {t[0]: (1, 2), t[1]: (1, 2, 3), t[2]: (2, 1)}
    assert partition_lines(targets, ongoing, current) == [
        "Status of partition reassignment:",
        "Reassignment of partition t-0 is completed.",
        "Reassignment of partition t-1 is still in progress.",
        "There is no active reassignment of partition t-2, but replica set is 2,1 rather than 1,2.",
        "There is no active reassignment of partition t-3, but replica set is  rather than 1,2.",
    ]


def test_reassignments_in_progress() -> None:
    ongoing = {
        TopicPartition("u", 0): PartitionReassignment((1, 2), (2,), ()),
        TopicPartition("t", 10): PartitionReassignment((1, 2), (), (1,)),
        TopicPartition("t", 9): PartitionReassignment((3, 1, 2), (3,), (1, 2)),
    }
    assert ongoing_lines(ongoing) == [
        "Current partition reassignments:",
        "t-9: replicas: 3,1,2. adding: 3. removing: 1,2.",
        "t-10: replicas: 1,2. removing: 1.",
        "u-0: replicas: 1,2. adding: 2.",
    ]
    assert ongoing_lines({}) == ["No partition reassignments found."]
