"""The sizes of logs are summed up for each directory. Only replicas that note a change are looked at."""

from broker.hosting.log_metrics import LogSizes
from broker.hosting.replica_descriptions import ReplicaDescription
from common.ids import DirectoryId, TopicId, TopicIdPartition, Uuid, uuid_text

FIRST = DirectoryId(Uuid(b"A" * 16))
SECOND = DirectoryId(Uuid(b"B" * 16))
TOPIC = TopicId(Uuid(b"T" * 16))


class Resized:
    """Stands in for Replicas. The test notes what has changed."""

    def __init__(self) -> None:
        self.noted: dict[TopicIdPartition, ReplicaDescription | None] = {}

    def note(self, index: int, directory_id: DirectoryId | None, size_bytes: int = 0) -> None:
        replica = None if directory_id is None else ReplicaDescription("t", index, directory_id, size_bytes, 0)
        self.noted[TopicIdPartition(TOPIC, index)] = replica

    def take_resized(self) -> dict[TopicIdPartition, ReplicaDescription | None]:
        noted, self.noted = self.noted, {}
        return noted


class Shown:
    """The sizes as a scrape shows them: of the replicas by partition and path, and of the directories by path."""

    def __init__(self) -> None:
        self.online = {FIRST: "/a", SECOND: "/b"}
        self.replicas = Resized()
        self._sizes = LogSizes()

    def publish(self) -> tuple[dict[tuple[str, str], float], dict[str, float]]:
        found = [
            (sample.name, dict(sample.labels), sample.value) for sample in self._sizes.samples(self.online, self.replicas)
        ]
        logs = {
            (labels["partition"], labels["logDirectory"]): value
            for name, labels, value in found
            if name == "kafka_log_log_size"
        }
        used = {labels["logDirectory"]: value for name, labels, value in found if name == "kafka_log_logdir_used_bytes"}
        assert len(found) == len(logs) + len(used)
        return logs, used


def test_sizes_by_replica_and_directory() -> None:
    """One directory has two replicas. The other has none, and its size is shown as 0. Where nothing is noted, the sizes
    stay."""
    shown = Shown()
    shown.replicas.note(0, FIRST, 100)
    shown.replicas.note(1, FIRST, 101)
    sizes = {("0", "/a"): 100, ("1", "/a"): 101}, {"/a": 201, "/b": 0}
    assert shown.publish() == sizes
    assert shown.publish() == sizes


def test_a_sample_is_labelled_as_in_kafka() -> None:
    shown = Shown()
    shown.replicas.note(7, SECOND, 5)
    log, first, second = LogSizes().samples(shown.online, shown.replicas)
    assert log.labels == (("topic", "t"), ("partition", "7"), ("logDirectory", "/b"))
    assert first.labels == (("logDirectory", "/a"), ("directoryId", uuid_text(FIRST)))
    assert second.labels == (("logDirectory", "/b"), ("directoryId", uuid_text(SECOND)))


def test_a_replica_grows_moves_and_leaves() -> None:
    """Each change replaces what was shown of the replica before, also in the sums."""
    shown = Shown()
    for index in (0, 1):
        shown.replicas.note(index, FIRST, 100)
    shown.publish()
    shown.replicas.note(0, FIRST, 150)
    assert shown.publish() == ({("0", "/a"): 150, ("1", "/a"): 100}, {"/a": 250, "/b": 0})
    shown.replicas.note(0, SECOND, 160)
    assert shown.publish() == ({("0", "/b"): 160, ("1", "/a"): 100}, {"/a": 100, "/b": 160})
    shown.replicas.note(1, None)
    assert shown.publish() == ({("0", "/b"): 160}, {"/a": 0, "/b": 160})


def test_replicas_of_a_failed_directory_disappear() -> None:
    """The directory is gone at once. Its replicas are noted when they are closed, and those that are still to be closed are
    not shown any more."""
    shown = Shown()
    shown.replicas.note(0, FIRST, 100)
    shown.replicas.note(1, FIRST, 100)
    shown.publish()
    del shown.online[FIRST]
    shown.replicas.note(0, None)
    shown.replicas.note(1, FIRST, 100)
    assert shown.publish() == ({}, {"/b": 0})
