"""Every declared message and version is compared with an independent codec, and every one belongs to an API or a header."""

from common.protocol.registry import APIS
from common.protocol.schema import Kind, message_schema
from tests.property import test_protocol_kafka_python, test_protocol_kio
from tests.property.protocol_strategies import declared_messages, declared_versions, versions_of

# What kafka-python, a client library, has no codec for: the messages between brokers and controllers.
BETWEEN_NODES = (
    "AlterPartition",
    "AssignReplicasToDirs",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "DefaultPrincipalData",
    "Envelope",
    "FetchSnapshot",
    "UnregisterBroker",
)


def test_every_declared_version_has_an_oracle_test() -> None:
    """kio knows all that we declare; should a later declaration be unknown to it, another oracle has to be found."""
    assert set(test_protocol_kio.CASES) == set(declared_versions())


def test_every_client_message_has_a_second_oracle() -> None:
    """What clients send and receive is compared with kafka-python too, in every version."""
    client_messages = {
        (each, version)
        for each in declared_messages()
        if not each.__name__.startswith(BETWEEN_NODES)
        for version in versions_of(each)
    }
    assert set(test_protocol_kafka_python.CASES) == client_messages


def test_every_declared_message_is_registered() -> None:
    """A request or response that the registry does not list could never be sent."""
    registered = {each for api in APIS.values() for each in (api.request, api.response)}
    declared = {each for each in declared_messages() if message_schema(each).kind in (Kind.REQUEST, Kind.RESPONSE)}
    assert declared == registered
