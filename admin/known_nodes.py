"""Remembers the nodes that an AdminClient knows, and chooses the node for each request (core).

Counterpart of Kafka's AdminMetadataManager and of its node providers.

1. Until the first Metadata response, only the bootstrap servers are known. They are never forgotten: if no broker answers
   any more, the client asks the bootstrap servers again (KIP-899).
2. A request for any broker prefers a node with a live connection, then the node with the fewest failures in a row, then the
   node that sent the metadata. So a dead broker costs one attempt instead of every second one, and a program usually reads
   from the broker that it wrote to.
3. A client of the controllers (KIP-919) knows controllers instead of brokers, and every request without a node of its own
   goes to the active one.
4. Metadata is fetched again when it is too old, after a failed attempt or a retriable error such as NOT_CONTROLLER, and when
   it does not contain the destination of a request.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from common.configuration.endpoints import HostPort
from common.protocol.messages.describe_cluster import EndpointType
from common.time_units import NS_PER_S

if TYPE_CHECKING:
    import random

# Kafka's metadata.max.age.ms.
METADATA_AGE_MAX_NS: Final = 300 * NS_PER_S


class Role(Enum):
    """A destination that is given by the role of the node instead of its id."""

    ANY_BROKER = "any broker"
    CONTROLLER = "the controller"


@dataclass(frozen=True, slots=True)
class GroupCoordinator:
    """A destination that only a broker can name: the coordinator of this group."""

    group_id: str


Destination = Role | GroupCoordinator | int
"""A role, the coordinator of a group, or the id of a broker."""


class KnownNodes:
    """The bootstrap servers, and the brokers and the controller of the last Metadata response. With `endpoint_type`
    CONTROLLER: the bootstrap controllers, and the controllers of the last DescribeCluster response."""

    def __init__(
        self, bootstrap: Sequence[HostPort], rng: "random.Random", endpoint_type: EndpointType = EndpointType.BROKER
    ) -> None:
        self._bootstrap = tuple(bootstrap)
        # The kind of the nodes that are known.
        self.endpoint_type = endpoint_type
        self._rng = rng
        self.brokers: Mapping[int, HostPort] = {}
        # The broker that takes requests for the controller; -1 if the last response named none.
        self.controller_id = -1
        # When the metadata was fetched; None if it has to be fetched before the next request.
        self._fetched_ns: int | None = None
        # The node that sent the metadata.
        self._source: HostPort | None = None
        # The failed attempts at each address since the last success there.
        self._failures: Counter[HostPort] = Counter()

    def needs_metadata(self, now_ns: int) -> bool:
        return self._fetched_ns is None or now_ns - self._fetched_ns >= METADATA_AGE_MAX_NS

    def replace(self, brokers: Mapping[int, HostPort], *, controller_id: int, source: HostPort, now_ns: int) -> None:
        """Stores the content of a Metadata or DescribeCluster response."""
        self._source = source
        self.brokers = dict(brokers)
        self.controller_id = controller_id
        self._fetched_ns = now_ns

    def distrust(self) -> None:
        """Makes the next attempt fetch the metadata first."""
        self._fetched_ns = None

    def note_failure(self, address: HostPort) -> bool:
        """Notes a failed attempt, and returns whether it is the first since the last success."""
        self._failures[address] += 1
        self.distrust()
        return self._failures[address] == 1

    def note_success(self, address: HostPort) -> None:
        del self._failures[address]

    def address_of(self, destination: Role | int, is_connected: Callable[[HostPort], bool]) -> HostPort | None:
        """Returns the address to send a request to, or None if the destination is not known."""
        if destination is Role.ANY_BROKER and self.endpoint_type is EndpointType.BROKER:
            connected = [address for address in self._bootstrap if is_connected(address)]
            # The bootstrap servers are brokers too. While every broker is fenced, no others are known.
            return self._by_preference([*self.brokers.values(), *connected] or self._bootstrap, is_connected)[0]
        return self.brokers.get(self.controller_id if isinstance(destination, Role) else destination)

    def to_ask(self, is_connected: Callable[[HostPort], bool]) -> list[HostPort]:
        """Returns the addresses to ask for metadata, in the order in which to try them."""
        return list(dict.fromkeys([*self._by_preference(self.brokers.values(), is_connected), *self._bootstrap]))

    def _by_preference(self, addresses: Iterable[HostPort], is_connected: Callable[[HostPort], bool]) -> list[HostPort]:
        def rank(each: HostPort) -> tuple[bool, int, bool, float]:
            return not is_connected(each), self._failures[each], each != self._source, self._rng.random()

        return sorted(addresses, key=rank)
