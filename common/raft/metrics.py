"""The Prometheus metrics of a node's place in the metadata quorum (shell without I/O).

Counterpart of Kafka's KafkaRaftMetrics, under the names that the stock jmx_exporter KRaft rules produce. A broker follows
without a vote, so its state is "observer". Only a voter is ever a "follower".
"""

from collections.abc import Collection, Iterator

from common.ids import NO_LEADER
from common.metrics_exposition import Sample, gauge
from common.raft.driver import QuorumDriver

PREFIX = "kafka_server_raft_metrics_"


def raft_samples(driver: QuorumDriver, *, node_id: int, voters: Collection[int]) -> Iterator[Sample]:
    """Yields the current samples. `voters` are the ids in controller.quorum.voters; none if the configuration has
    addresses only."""
    known = driver.leader_and_epoch
    leader_id = NO_LEADER if known.leader_id is None else known.leader_id
    yield gauge(PREFIX + "current_leader", "Id of the quorum's leader, -1 when it is not known.", leader_id)
    yield gauge(PREFIX + "current_epoch", "Epoch of the quorum.", known.epoch)
    yield gauge(PREFIX + "high_watermark", "Everything before this offset is committed.", driver.high_watermark)
    yield gauge(PREFIX + "log_end_offset", "Offset of the next metadata record.", driver.log_end_offset)
    if voters:
        yield gauge(PREFIX + "number_of_voters", "Voters of the quorum.", len(voters))
    state = quorum_state(is_leader=driver.is_leader, is_voter=node_id in voters, is_leader_known=known.leader_id is not None)
    yield gauge(PREFIX + "current_state_info", "The node's role in the quorum.", 1, state=state)


def quorum_state(*, is_leader: bool, is_voter: bool, is_leader_known: bool) -> str:
    """Returns Kafka's name for the node's role in the quorum."""
    if is_leader:
        return "leader"
    if not is_voter:
        return "observer"
    return "follower" if is_leader_known else "unattached"
