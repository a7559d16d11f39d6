"""The sizes of logs are summed up for each directory. They are collected from the replicas only at every WALK_EVERY-th
call."""

from broker.hosting.directory_logs import ReplicaDescription
from broker.hosting.log_metrics import WALK_EVERY, LogSizes
from common.ids import DirectoryId, Uuid, uuid_text

FIRST = DirectoryId(Uuid(b"A" * 16))
SECOND = DirectoryId(Uuid(b"B" * 16))


class Described:
    """Stands in for Replicas and counts the calls of `describe`."""

    def __init__(self) -> None:
        self.calls = 0

    def describe(self, directory_id: DirectoryId) -> list[ReplicaDescription]:
        self.calls += 1
        count = 2 if directory_id == FIRST else 0
        return [ReplicaDescription("t", index, directory_id, 100 + index, 0) for index in range(count)]


def test_sizes_by_replica_and_directory() -> None:
    """One directory has two replicas. The other has none, and its size is shown as 0. When a directory goes offline, its
    samples disappear at the next collection."""

    online = {FIRST: "/a", SECOND: "/b"}
    replicas = Described()
    sizes = LogSizes()
    found = [(sample.name, sample.labels, sample.value) for sample in sizes.samples(online, replicas)]
    assert found == [
        ("kafka_log_log_size", (("topic", "t"), ("partition", "0"), ("logDirectory", "/a")), 100),
        ("kafka_log_log_size", (("topic", "t"), ("partition", "1"), ("logDirectory", "/a")), 101),
        ("kafka_log_logdir_used_bytes", (("logDirectory", "/a"), ("directoryId", uuid_text(FIRST))), 201),
        ("kafka_log_logdir_used_bytes", (("logDirectory", "/b"), ("directoryId", uuid_text(SECOND))), 0),
    ]
    for _ in range(WALK_EVERY - 1):
        sizes.samples(online, replicas)
    assert replicas.calls == 2
    del online[FIRST]
    assert [sample.labels[0] for sample in sizes.samples(online, replicas)] == [("logDirectory", "/b")]
