"""The argument of kafka-storage format --initial-controllers: the controllers that a new quorum begins with (core, KIP-853).

Counterpart of Kafka's DynamicVoters.
"""

from typing import NamedTuple

from common.configuration.endpoints import HostPort, parse_host_port
from common.ids import DirectoryId, uuid_from_text
from common.metadata.directory_ids import is_reserved

_NODE_ID_MAX = 2**31 - 1


class InitialController(NamedTuple):
    """A controller, and the id of its metadata directory."""

    node_id: int
    address: HostPort
    directory_id: DirectoryId


def parse_initial_controllers(text: str) -> tuple[InitialController, ...]:
    """Parses `ID@HOST:PORT:DIRECTORY_ID,…`, at least one and each node id once. Raises ValueError."""
    found = tuple(_parse(part) for part in (item.strip() for item in text.split(",")) if part)
    if not found:
        raise ValueError("no controllers are given")
    node_ids = [each.node_id for each in found]
    for node_id in node_ids:
        if node_ids.count(node_id) > 1:
            raise ValueError(f"node id {node_id} is given more than once")
    return found


def _parse(text: str) -> InitialController:
    number, at, rest = text.partition("@")
    address_text, colon, uuid = rest.rpartition(":")
    if not at or not colon:
        raise ValueError(f"'{text}' is not ID@HOST:PORT:DIRECTORY_ID")
    if not (number.isascii() and number.isdigit() and int(number) <= _NODE_ID_MAX):
        raise ValueError(f"the node id of '{text}' is not a number from 0 to {_NODE_ID_MAX}")
    address = parse_host_port(address_text)
    if not address.host:
        raise ValueError(f"'{text}' has no host")
    directory_id = DirectoryId(uuid_from_text(uuid))
    if is_reserved(directory_id):
        raise ValueError(f"the directory id of '{text}' is reserved; kafka-storage random-uuid makes one")
    return InitialController(int(number), address, directory_id)
