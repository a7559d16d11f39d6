"""Every declared message version is tested against an independent codec, and every request and response is registered."""

from common.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from common.protocol.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from common.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from common.protocol.registry import APIS
from common.protocol.schema import Kind, message_schema
from tests.property import test_protocol_kafka_python, test_protocol_kio
from tests.property.protocol_strategies import declared_messages, declared_versions, versions_of
from tests.unit.common.protocol import test_golden_bytes

# The messages between brokers and controllers, and those of administrators that kafka-python has no codec for.
BETWEEN_NODES = (
    "AddRaftVoter",
    "AllocateProducerIds",
    "AlterPartitionRequest",
    "AlterPartitionResponse",
    "AssignReplicasToDirs",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "ControllerRegistration",
    "DefaultPrincipalData",
    "Envelope",
    "FetchSnapshot",
    "RemoveRaftVoter",
    "UnregisterBroker",
    "UnregisterController",
)

# The messages of KIP-848, which kafka-python does not speak. librdkafka and Java's clients do, in tests/interop.
NOT_IN_KAFKA_PYTHON = ("ConsumerGroupDescribe", "ConsumerGroupHeartbeat")

# The versions of Kafka 4.4, which neither of the codecs knows yet.
NEWER = {
    (ApiVersionsRequest, 5),
    (ApiVersionsResponse, 5),
    (DeleteGroupsRequest, 3),
    (DeleteGroupsResponse, 3),
    (TxnOffsetCommitRequest, 6),
    (TxnOffsetCommitResponse, 6),
}


def test_every_declared_version_has_an_oracle_test() -> None:
    """Every version of every message that we declare is compared with kio, or with bytes that were derived by hand."""
    assert {*test_protocol_kio.CASES, *test_golden_bytes.CASES} == set(declared_versions())


def test_every_client_message_has_a_second_oracle() -> None:
    """Every version of every client message is also compared with kafka-python."""
    client_messages = {
        (each, version)
        for each in declared_messages()
        if not each.__name__.startswith(BETWEEN_NODES + NOT_IN_KAFKA_PYTHON)
        for version in versions_of(each)
    }
    assert set(test_protocol_kafka_python.CASES) == client_messages - NEWER


def test_every_declared_message_is_registered() -> None:
    """A request or response that is missing in the registry could never be sent."""
    registered = {each for api in APIS.values() for each in (api.request, api.response)}
    declared = {each for each in declared_messages() if message_schema(each).kind in (Kind.REQUEST, Kind.RESPONSE)}
    assert declared == registered
