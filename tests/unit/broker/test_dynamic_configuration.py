"""A broker applies dynamic configuration while it runs, and also the configuration that the image holds when it starts.

The changes arrive as metadata records on the simulated cluster. The controller's tests cover how these records are written.
"""

from common.protocol.errors import ErrorCode
from tests.unit.broker.cluster import Cluster, path, run


def segments(cluster: Cluster) -> int:
    """Returns how many segments of t-0 are on broker 1's disk."""
    return sum(name.startswith("t-0/") and name.endswith(".log") for name in cluster.world.disk(path(1, "a")).files())


def test_the_cluster_wide_default_reaches_topics_without_an_override() -> None:
    """From the next request on, the broker uses min.insync.replicas and message.max.bytes of all brokers. A topic's override
    and the broker's own configuration take precedence."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        cluster.controller.configure_broker("", "message.max.bytes", "100")
        assert (await cluster.produce(1, "x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        cluster.controller.configure_broker("1", "message.max.bytes", "1000")
        assert (await cluster.produce(1, "x" * 200)).error_code == ErrorCode.NONE
        cluster.controller.configure("max.message.bytes", "150")
        assert (await cluster.produce(1, "x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        cluster.controller.configure("max.message.bytes", None)
        cluster.controller.configure_broker("1", "message.max.bytes", None)
        cluster.controller.configure_broker("", "message.max.bytes", None)
        assert (await cluster.produce(1, "x" * 200)).error_code == ErrorCode.NONE

    run(scenario)


def test_another_brokers_configuration_does_not_count() -> None:
    """Broker 1 ignores a record that names broker 2."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        cluster.controller.configure_broker("2", "message.max.bytes", "100")
        assert (await cluster.produce(1, "x" * 200)).error_code == ErrorCode.NONE

    run(scenario)


def test_min_insync_replicas_of_all_brokers_refuses_and_releases() -> None:
    """While the minimum exceeds the size of the ISR, acks=all is refused. Deleting the default restores the old minimum at
    once."""

    async def scenario(cluster: Cluster) -> None:
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        cluster.controller.create_topic([1, 2])
        await cluster.started()
        cluster.controller.change(isr=[1])
        cluster.controller.fence(2)
        cluster.controller.configure_broker("", "min.insync.replicas", "2")
        assert (await cluster.produce(1, "x")).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        cluster.controller.configure_broker("", "min.insync.replicas", None)
        assert (await cluster.produce(1, "x")).error_code == ErrorCode.NONE

    run(scenario)


def test_segments_and_retention_follow_the_defaults_of_all_brokers() -> None:
    """A change of log.segment.bytes makes the log roll. A change of log.retention.bytes deletes the oldest segments. Neither
    needs a restart."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        for number in range(5):
            await cluster.produce(1, f"value-{number}")
        log = cluster[1].partition().log
        assert segments(cluster) == 1
        cluster.controller.configure_broker("", "log.segment.bytes", "200")
        for number in range(10):
            await cluster.produce(1, f"value-{number}")
        assert segments(cluster) > 3
        assert log.log_start_offset == 0
        cluster.controller.configure_broker("", "log.retention.bytes", "300")
        await cluster.until(lambda: log.log_start_offset > 0)
        await cluster.until(lambda: segments(cluster) < 4)

    run(scenario, log_retention_check_interval_ms="500")


def test_a_restarted_broker_applies_what_the_image_holds() -> None:
    """The configuration is not in server.properties. Its records were written before the restart."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        cluster.controller.configure_broker("", "message.max.bytes", "100")
        cluster.controller.configure_broker("1", "leader.replication.throttled.rate", "5")
        await cluster.stop(1)
        await cluster.start(1)
        await cluster.started()
        assert (await cluster.produce(1, "x" * 200)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert cluster[1].configuration.server.leader_replication_throttled_rate == 5

    run(scenario)
