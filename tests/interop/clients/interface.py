"""What a story does with a client."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from tests.interop.group_members import Member

SECONDS_MAX = 120.0
REPLICATION_FACTOR = 3

# A record to write, as (partition, value). Values have neither blanks nor quotes.
Record = tuple[int, str]


class NotHere(Exception):
    """The client cannot run on this machine. The message gives the reason."""


class Client(ABC):
    """One client. Each method makes a new instance of it, does its work and closes it, or raises what the client raised."""

    name: str
    # Whether a producer with default settings waits for the whole ISR (acks=all). With acks=1 a record that the leader alone
    # has acknowledged may be lost together with the leader's disk or broker.
    waits_for_isr = True

    @abstractmethod
    def prepare(self) -> None:
        """Builds or installs what the client needs. Raises NotHere."""

    @abstractmethod
    def compressions(self) -> list[str]:
        """Returns the names of the compression types that it has, "none" included."""

    @abstractmethod
    def create(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Creates a topic with three replicas of each partition."""

    @abstractmethod
    def topics(self, bootstrap: str) -> set[str]:
        """Lists the topics."""

    @abstractmethod
    def delete(self, bootstrap: str, topic: str) -> None:
        """Deletes a topic."""

    @abstractmethod
    def produce(self, bootstrap: str, topic: str, compression: str, records: Iterable[Record]) -> set[str]:
        """Writes the records as they come and returns the values that were acknowledged."""

    @property
    @abstractmethod
    def member(self) -> Callable[[str, str, str], Member]:
        """Makes a member of a group, from bootstrap servers, topic and group."""
