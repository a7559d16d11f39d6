"""What a controller knows only as long as it is active (core)."""

from dataclasses import dataclass

from common.ids import LeaderEpoch
from controller.core.broker_sessions import BrokerSessions
from controller.core.unfencing import AwaitedReplicas


@dataclass(slots=True)
class Term:
    """This node's soft state for one term as the active controller. It is dropped when the term ends."""

    # The quorum's leader epoch in this term, passed with every append. Constant.
    epoch: LeaderEpoch
    # The brokers' sessions. A term starts with a full session for every unfenced broker. Changed by broker requests and
    # fencing. Extended when this process resumes after having been suspended.
    sessions: BrokerSessions
    # What keeps fenced brokers fenced. Follows every record of this term.
    awaited: AwaitedReplicas
    # The state's `election_changes` before the last leaderless sweep that elected no leader; -1 if there was no such sweep.
    # While it still has this value, another sweep would elect no leader either.
    swept_count: int = -1
    # The time of the last append in this term, or of the start of the term if there was none. Decides whether the log is
    # idle.
    last_append_ns: int = 0
