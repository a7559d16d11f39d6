"""The exception a checker raises when an invariant of the cluster does not hold.

Shell of the tests. It is a module of its own because SimulatedWorld needs it too: the world raises this exception as it is,
and turns every other unretrieved exception into SimulationFailed.
"""


class InvariantViolated(AssertionError):
    """Names the invariant (I1 to I31 of docs/INVARIANTS.md) and says where it was violated and what was seen."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text
