"""A cluster on loop-mounted disks, for tests in which a client outlives one of them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.blocking_admin import BlockingAdmin
from tests.integration.cluster import need_loop_disks
from tools.lab.local_cluster import LocalCluster

BROKERS = 3


@contextmanager
def loop_cluster(folder: Path) -> Iterator[LocalCluster]:
    """Three brokers with two disks each. Skips the test where there are no loop devices."""
    need_loop_disks(folder)
    made = LocalCluster.create(folder / "cluster", brokers=BROKERS, disks=2, loop=True)
    try:
        made.start()
        with BlockingAdmin(made.bootstrap) as admin:
            admin.wait_until_known(range(1, BROKERS + 1))
        yield made
    finally:
        made.kill()
        made.delete()


def disk_with_a_leader(cluster: LocalCluster, topic: str, broker: int | None = None) -> Path:
    """Returns a disk with the leader of a partition of this topic, on this broker if one is given."""
    with BlockingAdmin(cluster.bootstrap) as admin:
        (described,) = admin.metadata([topic]).topics
        leaders = {part.partition_index: part.leader_id for part in described.partitions}
        for partition, leader in sorted(leaders.items()):
            for result in admin.log_dirs(leader) if leader == (broker or leader) else ():
                for found in result.topics:
                    if found.name == topic and partition in {part.partition_index for part in found.partitions}:
                        return Path(result.log_dir)
    raise AssertionError(f"broker {broker} leads no partition of {topic}")
