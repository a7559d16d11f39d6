"""Consumer groups with real clients and their default settings: members leave and join, offsets are committed and found.

Each client runs the same story, so what differs is only its own protocol: eager or cooperative rebalance, versions of the
requests, and when it commits.
"""

import itertools
from collections.abc import Callable, Sequence

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from tests.interop.group_members import CONSUMER_PROTOCOL, MEMBERS, SECONDS_MAX, Member, until
from tests.interop.topics import create_topic
from tests.interop.waiting import until_equal

PARTITIONS = 6
_numbers = itertools.count()

each_client = pytest.mark.parametrize("client", list(MEMBERS))


@pytest.fixture
def wide_topic(bootstrap: str, new_topic_name: Callable[[], str]) -> str:
    """A topic with more partitions than there are members."""
    return create_topic(bootstrap, new_topic_name(), partitions=PARTITIONS)


@pytest.fixture
def group(new_topic_name: Callable[[], str]) -> str:
    return f"group-{new_topic_name()}"


def write(bootstrap: str, topic: str, count: int = 60) -> set[bytes]:
    """Writes values that no other call writes, spread over all partitions, and returns them."""
    producer = Producer({"bootstrap.servers": bootstrap})
    values = {f"value {next(_numbers)}".encode() for _ in range(count)}
    for number, value in enumerate(sorted(values)):
        producer.produce(topic, value, partition=number % PARTITIONS)
    assert producer.flush(SECONDS_MAX) == 0
    return values


def is_shared(members: Sequence[Member]) -> bool:
    """Whether the members own all partitions together, each partition once and each member at least one."""
    owned = [index for member in members for index in member.assigned]
    return sorted(owned) == list(range(PARTITIONS)) and all(member.assigned for member in members)


def values_read(members: Sequence[Member]) -> set[bytes]:
    return {value for member in members for _, _, value in member.read}


@pytest.mark.slow
@pytest.mark.timeout(600)
@each_client
def test_a_group_of_three_with_one_leaving_and_one_joining(client: str, bootstrap: str, wide_topic: str, group: str) -> None:
    """Three members share the partitions. One leaves and the others take over, one joins and gets its share; all records are
    read. When all have left, another member goes on where they had stopped, and reads only what is new."""
    written = write(bootstrap, wide_topic)
    members = [MEMBERS[client](bootstrap, wide_topic, group) for _ in range(4)]
    first, second, third, fourth = members
    try:
        for member in (first, second, third):
            member.start()
        until(lambda: is_shared([first, second, third]), members, "three members share the partitions")
        until(lambda: values_read(members) == written, members, "all records are read")
        first.close()
        until(lambda: is_shared([second, third]), members, "two members take over")
        fourth.start()
        until(lambda: is_shared([second, third, fourth]), members, "the new member gets its share")
        written |= write(bootstrap, wide_topic)
        until(lambda: values_read(members) == written, members, "all records are read")
        for member in (second, third, fourth):
            member.close()
    finally:
        for member in members:
            if member.is_alive():
                member.close()
    news = write(bootstrap, wide_topic)
    last = MEMBERS[client](bootstrap, wide_topic, group)
    last.start()
    until(lambda: values_read([last]) >= news, [last], "the news are read")
    last.close()
    assert values_read([last]) == news
    assert len(last.read) == len(news)


@pytest.mark.slow
def test_librdkafka_commits_and_closes_without_a_wait(bootstrap: str, wide_topic: str, group: str) -> None:
    """A synchronous commit returns with its result, and close returns soon. Both used to block for as long as they may."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.commit(offsets=[TopicPartition(wide_topic, 0, 5)], asynchronous=False)
    (found,) = consumer.committed([TopicPartition(wide_topic, 0)], timeout=SECONDS_MAX)
    assert found.offset == 5
    consumer.subscribe([wide_topic])
    consumer.poll(1)
    consumer.close()


def test_a_commit_for_a_partition_that_does_not_exist_is_an_error(bootstrap: str, wide_topic: str, group: str) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    with pytest.raises(KafkaException) as raised:
        consumer.commit(offsets=[TopicPartition(wide_topic, PARTITIONS, 5)], asynchronous=False)
    assert "UNKNOWN_TOPIC_OR_PART" in str(raised.value)
    consumer.close()


@pytest.mark.slow
def test_an_administrator_sees_moves_and_deletes_a_group(bootstrap: str, wide_topic: str, group: str) -> None:
    """librdkafka's admin client lists and describes the group, changes its offsets, and deletes it once it is empty."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    member = MEMBERS["confluent-kafka"](bootstrap, wide_topic, group)
    member.start()
    until(lambda: member.assigned, [member], "the member is assigned its partitions")
    # The member is told its assignment before the group is stable.
    until_equal(lambda: admin.describe_consumer_groups([group])[group].result(SECONDS_MAX).state.name, "STABLE")
    listed = admin.list_consumer_groups().result(SECONDS_MAX)
    assert not listed.errors
    assert group in {each.group_id for each in listed.valid}
    described = admin.describe_consumer_groups([group])[group].result(SECONDS_MAX)
    assert (described.state.name, len(described.members)) == ("STABLE", 1)
    assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    with pytest.raises(KafkaException, match="NON_EMPTY_GROUP"):
        admin.delete_consumer_groups([group])[group].result(SECONDS_MAX)
    member.close()
    wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(wide_topic, 1, 3)])
    admin.alter_consumer_group_offsets([wanted])[group].result(SECONDS_MAX)
    asked = ConsumerGroupTopicPartitions(group, [TopicPartition(wide_topic, 1)])
    found = admin.list_consumer_group_offsets([asked])[group].result(SECONDS_MAX)
    assert [each.offset for each in found.topic_partitions] == [3]
    admin.delete_consumer_groups([group])[group].result(SECONDS_MAX)
    assert group not in {each.group_id for each in admin.list_consumer_groups().result(SECONDS_MAX).valid}


@pytest.mark.slow
def test_an_administrator_sees_a_group_of_the_consumer_protocol(bootstrap: str, wide_topic: str, group: str) -> None:
    """librdkafka's admin client finds out by itself which request describes the group."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    member = MEMBERS[CONSUMER_PROTOCOL](bootstrap, wide_topic, group)
    member.start()
    until(lambda: member.assigned, [member], "the member is assigned its partitions")
    until_equal(lambda: admin.describe_consumer_groups([group])[group].result(SECONDS_MAX).state.name, "STABLE")
    listed = admin.list_consumer_groups(types={ConsumerGroupType.CONSUMER}).result(SECONDS_MAX)
    assert [(each.state.name, each.type.name) for each in listed.valid if each.group_id == group] == [("STABLE", "CONSUMER")]
    described = admin.describe_consumer_groups([group])[group].result(SECONDS_MAX)
    assert (described.state.name, described.type.name, described.partition_assignor) == ("STABLE", "CONSUMER", "uniform")
    assert len(described.members[0].assignment.topic_partitions) == PARTITIONS
    member.close()
    admin.delete_consumer_groups([group])[group].result(SECONDS_MAX)
    assert group not in {each.group_id for each in admin.list_consumer_groups().result(SECONDS_MAX).valid}


def test_clients_may_not_write_to_the_offsets(bootstrap: str, wide_topic: str, group: str) -> None:
    """The topic is internal: a producer is refused. An administrator sees it as internal."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.commit(offsets=[TopicPartition(wide_topic, 0, 1)], asynchronous=False)
    consumer.close()
    failures: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce("__consumer_offsets", b"x", on_delivery=lambda error, _: failures.append(error))
    producer.flush(SECONDS_MAX)
    (failure,) = failures
    assert failure is not None
    assert failure.code() == KafkaError.TOPIC_EXCEPTION
