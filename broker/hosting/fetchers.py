"""The fetchers of this broker, and which one replicates which follower partition (shell).

Counterpart of Kafka's ReplicaFetcherManager. `follow` looks at a partition's role and its leader's current address, and
assigns the partition to the right fetcher or to none. It is called whenever the role, the leader or the address changes. A
restarted leader may have a new address; then all partitions of its fetchers must move to new fetchers. `expect` assigns a
replica whose log is still being created.
"""

import asyncio
from collections.abc import Callable
from functools import partial

from broker.core.partition_replica import Role
from broker.core.replication_quota import ReplicationQuota
from broker.hosting.leader_connection import Channel, FetcherSettings, LeaderConnection
from broker.hosting.partition import Partition
from broker.hosting.replica_fetcher import ReplicaFetcher
from broker.hosting.traffic import Traffic
from broker.hosting.upkeep import Upkeep
from common.environment.interface import Environment
from common.ids import NO_LEADER, BrokerEpoch, BrokerId, DirectoryId, TopicIdPartition
from common.log_dirs.suspected_directories import SuspectedDirectories
from common.metadata.registrations import PartitionRegistration
from common.metadata.state import MetadataState
from common.protocol.errors import ErrorCode

Address = tuple[str, int]
_FetcherKey = tuple[BrokerId, DirectoryId]


class Fetchers:
    """One ReplicaFetcher for each leader and local directory."""

    def __init__(
        self,
        env: Environment,
        state: MetadataState,
        *,
        broker_id: BrokerId,
        broker_epoch: Callable[[], BrokerEpoch | None],
        listener_name: str,
        connect: Callable[[str, int], Channel],
        settings: FetcherSettings,
        quota: ReplicationQuota,
        traffic: Traffic,
        task_group: asyncio.TaskGroup,
        upkeep: Upkeep,
        suspected: SuspectedDirectories,
    ) -> None:
        self._state = state
        self._broker_id = broker_id
        self._listener_name = listener_name
        self._connect = connect
        self._task_group = task_group
        self._new_connection = partial(
            LeaderConnection, env, local_id=broker_id, broker_epoch=broker_epoch, settings=settings
        )
        self._new_fetcher = partial(
            ReplicaFetcher,
            env,
            settings=settings,
            quota=quota,
            traffic=traffic,
            task_group=task_group,
            upkeep=upkeep,
        )
        self._suspected = suspected
        suspected.subscribe(self._directory_suspected, self._directory_trusted)
        # The running fetchers and the addresses they connect to. Invariant: between calls, every fetcher has at least one
        # partition, or had none when a notice was still unanswered.
        self._fetchers: dict[_FetcherKey, tuple[Address, ReplicaFetcher]] = {}
        # The fetcher of each followed or expected partition. Invariant: each of these fetchers is in `_fetchers`.
        self._placed: dict[TopicIdPartition, ReplicaFetcher] = {}

    def __len__(self) -> int:
        return len(self._fetchers)

    def follow(self, partition: Partition) -> None:
        """Assigns the partition to its leader's fetcher, or to none if it has no leader to follow."""
        fetcher = self._fetcher_for(partition)
        former = self._placed.get(partition.key)
        if former is not None and former is not fetcher:
            former.remove(partition)
            del self._placed[partition.key]
        if fetcher is not None:
            self._placed[partition.key] = fetcher
            fetcher.add(partition)
        self._stop_empty()

    def expect(self, key: TopicIdPartition, registration: PartitionRegistration, directory_id: DirectoryId) -> None:
        """Assigns a replica whose log is being created in this directory to its leader's fetcher. `follow` or `forget` ends
        that."""
        fetcher = None
        if registration.leader != self._broker_id:
            fetcher = self._fetcher_at(registration.leader, directory_id)
        former = self._placed.pop(key, None)
        if fetcher is not None:
            self._placed[key] = fetcher
            fetcher.expect(key, registration.leader_epoch)
        if former is not None and former is not fetcher:
            former.forget(key)
            self._stop_empty()

    def forget(self, key: TopicIdPartition) -> None:
        """Notes that no log is being created any more for a replica that is not hosted."""
        former = self._placed.pop(key, None)
        if former is not None:
            former.forget(key)
            self._stop_empty()

    def unfollow(self, partition: Partition) -> None:
        """Stops replicating a partition that is no longer hosted."""
        former = self._placed.pop(partition.key, None)
        if former is not None:
            former.remove(partition)
        self._stop_empty()

    def stop_directory(self, directory_id: DirectoryId) -> None:
        """Stops the fetchers of a directory that went offline."""
        for leader, directory in list(self._fetchers):
            if directory == directory_id:
                self._stop((leader, directory))

    def _directory_suspected(self, directory_id: DirectoryId) -> None:
        for (_, directory), (_, fetcher) in self._fetchers.items():
            if directory == directory_id:
                fetcher.halt()

    def _directory_trusted(self, directory_id: DirectoryId) -> None:
        for (_, directory), (_, fetcher) in self._fetchers.items():
            if directory == directory_id:
                fetcher.resume()

    def stop_all(self) -> None:
        for key in list(self._fetchers):
            self._stop(key)

    def _fetcher_for(self, partition: Partition) -> ReplicaFetcher | None:
        replica = partition.replica
        if partition.gone is not ErrorCode.NONE or replica.role is not Role.FOLLOWER:
            return None
        return self._fetcher_at(replica.leader, partition.directory_id)

    def _fetcher_at(self, leader: BrokerId, directory_id: DirectoryId) -> ReplicaFetcher | None:
        registration = None if leader == NO_LEADER else self._state.brokers.get(leader)
        endpoint = None if registration is None else registration.endpoint(self._listener_name)
        if endpoint is None:
            return None
        key = (leader, directory_id)
        address = (endpoint.host, endpoint.port)
        known = self._fetchers.get(key)
        if known is not None and known[0] == address:
            return known[1]
        if known is not None:
            self._stop(key)
        fetcher = self._start(key, address)
        self._fetchers[key] = (address, fetcher)
        return fetcher

    def _start(self, key: _FetcherKey, address: Address) -> ReplicaFetcher:
        leader_id, directory_id = key
        leader = self._new_connection(leader_id=leader_id, connect=partial(self._connect, *address))
        fetcher = self._new_fetcher(leader)
        if directory_id in self._suspected:
            fetcher.halt()
        self._task_group.create_task(fetcher.run(), name=f"replica-fetcher-{leader_id}")
        return fetcher

    def _stop(self, key: _FetcherKey) -> None:
        _, fetcher = self._fetchers.pop(key)
        for placed in [placed for placed, by in self._placed.items() if by is fetcher]:
            del self._placed[placed]
        fetcher.stop()

    def _stop_empty(self) -> None:
        for key in [key for key, (_, fetcher) in self._fetchers.items() if not len(fetcher) and not fetcher.awaits_answers]:
            self._stop(key)
