"""The states of a transactional id (core).

                      partitions are added
     Empty ----------------------------------> Ongoing -------------------------+
       ^                                        ^  | commit                     | abort, timeout, or a new producer
       |                                        |  v                            v
       | InitProducerId                         | PrepareCommit               PrepareAbort
       |                                        |  | all partitions have        | all partitions have
       |                                        |  v their markers              v their markers
       +--------------------------------------- CompleteCommit              CompleteAbort  (continues as CompleteCommit does)

With transaction.version 2, a producer may also abort when nothing is open: from Empty, CompleteCommit and CompleteAbort to
PrepareAbort. It gets a new epoch by that.

A transactional id that expires becomes Dead: its record is a tombstone. PrepareEpochFence is what Kafka's coordinator keeps
in memory between raising the epoch of a producer and writing PrepareAbort. Here both are one step, so no transaction is ever
in that state; it has its number because the numbers are those of the log.
"""

from enum import IntEnum


class TransactionState(IntEnum):
    """The value is that of the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def label(self) -> str:
        """The name that clients see."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided, and markers are due."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def may_begin(self) -> bool:
        """Whether no transaction is open: the next one may begin, or the id may expire."""
        return self in (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


_IDLE = {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}

_FROM = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: _IDLE | {TransactionState.ONGOING},
    TransactionState.PREPARE_COMMIT: {TransactionState.ONGOING},
    TransactionState.PREPARE_ABORT: _IDLE | {TransactionState.ONGOING, TransactionState.PREPARE_EPOCH_FENCE},
    TransactionState.COMPLETE_COMMIT: {TransactionState.PREPARE_COMMIT},
    TransactionState.COMPLETE_ABORT: {TransactionState.PREPARE_ABORT},
    TransactionState.DEAD: _IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: {TransactionState.ONGOING},
}


def may_become(state: TransactionState, next_state: TransactionState) -> bool:
    return state in _FROM[next_state]
