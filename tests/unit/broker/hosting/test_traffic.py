"""Produced and fetched records are counted per topic and in total, and the totals remain when a topic is deleted."""

from broker.hosting.traffic import TOPICS_PER_CALL_MAX, Traffic
from common.metrics_exposition import Sample
from common.protocol.errors import ErrorCode
from tests.unit.broker.cluster import Cluster, run


def series(traffic: Traffic, name: str, topics: list[str]) -> dict[str, float]:
    """Returns each series' value by topic. The empty name is the total over all topics."""
    return {
        dict(sample.labels)["topic"]: sample.value
        for sample in traffic.samples(topics)
        if sample.name == f"kafka_server_brokertopicmetrics_{name}"
    }


def test_counts_by_topic_and_in_all() -> None:
    """Counts batches of two topics, separately for followers and consumers."""
    traffic = Traffic()
    traffic.produced("a", messages=3, size=100)
    traffic.produced("b", messages=1, size=10)
    traffic.fetched("a", size=100, is_follower=False)
    traffic.fetched("a", size=70, is_follower=True)
    traffic.replicated("b", size=5)
    assert series(traffic, "messagesin", ["a", "b"]) == {"": 4, "a": 3, "b": 1}
    assert series(traffic, "bytesin", ["a", "b"]) == {"": 110, "a": 100, "b": 10}
    assert series(traffic, "bytesout", ["a", "b"]) == {"": 100, "a": 100, "b": 0}
    assert series(traffic, "replicationbytesout", ["a", "b"]) == {"": 70, "a": 70, "b": 0}
    assert series(traffic, "replicationbytesin", ["a", "b"]) == {"": 5, "a": 0, "b": 5}
    assert traffic.bytes_total == 110 + 100 + 70 + 5
    assert series(traffic, "totalfetchrequests", ["a", "b"]) == {"": 2, "a": 2, "b": 0}


def test_a_deleted_topic_leaves_the_sums_alone() -> None:
    """The topic's own series disappears, but the total still includes it. If the total fell, Prometheus would take that for
    a restart."""
    traffic = Traffic()
    traffic.produced("a", messages=3, size=100)
    traffic.produced("b", messages=1, size=10)
    assert series(traffic, "messagesin", ["b"]) == {"": 4, "b": 1}


def test_only_the_series_of_topics_that_were_used_are_built_again() -> None:
    traffic = Traffic()
    for topic in ("a", "b"):
        traffic.produced(topic, messages=1, size=10)

    def samples() -> dict[tuple[str, str], Sample]:
        return {(sample.name, dict(sample.labels)["topic"]): sample for sample in traffic.samples(["a", "b"])}

    before = samples()
    traffic.fetched("b", size=10, is_follower=False)
    after = samples()
    assert after.keys() == before.keys()
    assert {topic for name, topic in after if after[name, topic] is not before[name, topic]} == {"", "b"}


def test_the_series_of_very_many_topics_come_one_after_the_other() -> None:
    """The totals are complete at once. Of the others those that changed first come first."""
    traffic = Traffic()
    names = [str(number) for number in range(TOPICS_PER_CALL_MAX + 1)]
    for name in names:
        traffic.produced(name, messages=1, size=10)
    traffic.produced("0", messages=1, size=10)
    assert series(traffic, "messagesin", names) == {"": len(names) + 1, "0": 2} | dict.fromkeys(names[1:-1], 1)
    assert series(traffic, "messagesin", names).keys() == {"", *names}


def test_only_refusals_for_the_content_are_failures() -> None:
    """Requests to a former leader or for an unknown topic are normal and do not count as failures. A refused request creates
    no series for its topic."""
    traffic = Traffic()
    traffic.produce_refused("unknown", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    traffic.produce_refused("a", ErrorCode.NOT_LEADER_OR_FOLLOWER)
    traffic.produce_refused("a", ErrorCode.CORRUPT_MESSAGE)
    assert series(traffic, "failedproducerequests", ["a"]) == {"": 1}
    assert series(traffic, "totalproducerequests", ["a"]) == {"": 3}


def test_what_the_handlers_carry_is_counted() -> None:
    """Two records are produced to a real broker and read back once. The counters show two records in, and the batch's size
    in and out."""

    async def scenario(cluster: Cluster) -> None:
        broker = await cluster.start(1)
        cluster.controller.create_topic([1])
        await cluster.started()
        assert (await cluster.produce(1, "one", "two")).error_code == ErrorCode.NONE
        assert await cluster.read_all(1) == ["one", "two"]
        counts = broker.replicas.traffic.all
        size = broker.partition().log.size_bytes
        assert (counts.messages_in, counts.bytes_in, counts.bytes_out) == (2, size, size)
        assert (counts.total_produce_requests, counts.failed_produce_requests) == (1, 0)
        assert counts.total_fetch_requests >= 1

    run(scenario)
