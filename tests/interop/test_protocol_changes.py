"""A group whose members are restarted from the classic protocol into the consumer protocol and back, one after the other.

One member is Apache Kafka's Java client, the other librdkafka, which offers both protocols as well. All the while records
are written. Each record is read exactly once: no member reads a partition that another owns, and none skips or repeats
committed records.
"""

from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient

from tests.interop.clients.interface import NotHere
from tests.interop.clients.programs import JavaClient
from tests.interop.group_members import (
    SECONDS_MAX,
    ConfluentBriskMember,
    ConfluentConsumerProtocolMember,
    Member,
    until,
)
from tests.interop.test_groups import is_shared, write
from tests.interop.topics import create_topic

PARTITIONS = 6


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_members_are_restarted_into_the_other_protocol_and_back(bootstrap: str, new_topic_name: Callable[[], str]) -> None:
    """After each restart the group has the type of its members, all partitions are shared, and what is written is read."""
    java = JavaClient()
    try:
        java.prepare()
    except NotHere as reason:
        pytest.skip(f"NO GROUP HAS CHANGED ITS PROTOCOL: {reason}")
    makers: dict[str, Callable[[str, str, str], Member]] = {
        "java, classic": java.member_with("heartbeat.interval.ms=300"),
        "java, consumer": java.member_with("group.protocol=consumer"),
        "librdkafka, classic": ConfluentBriskMember,
        "librdkafka, consumer": ConfluentConsumerProtocolMember,
    }
    topic, group = create_topic(bootstrap, new_topic_name(), partitions=PARTITIONS), f"group-{new_topic_name()}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    written: set[bytes] = set()
    everybody: list[Member] = []
    here: dict[str, Member] = {}

    def start(client: str, protocol: str) -> None:
        member = here[client] = makers[f"{client}, {protocol}"](bootstrap, topic, group)
        everybody.append(member)
        member.start()

    def restart(client: str, protocol: str, expected_type: str) -> None:
        if client in here:
            here.pop(client).close()
        start(client, protocol)
        until(lambda: is_shared(list(here.values())), everybody, f"{client} has its share with the {protocol} protocol")
        written.update(write(bootstrap, topic))
        until(lambda: {value for each in everybody for _, _, value in each.read} == written, everybody, "all is read")
        listed = admin.list_consumer_groups().result(SECONDS_MAX)
        assert [each.type.name for each in listed.valid if each.group_id == group] == [expected_type]

    try:
        start("java", "classic")
        restart("librdkafka", "classic", "CLASSIC")
        restart("java", "consumer", "CONSUMER")
        restart("librdkafka", "consumer", "CONSUMER")
        restart("java", "classic", "CONSUMER")
        restart("librdkafka", "classic", "CLASSIC")
    finally:
        for each in here.values():
            each.close()
    read = [each for member in everybody for each in member.read]
    assert len(read) == len(set(read)) == len(written)
