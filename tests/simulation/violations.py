"""What a checker raises: an invariant of the cluster did not hold.

Shell of the tests. A module of its own, because the world that runs a scenario lets it through as it is, while everything
else that nobody looked at becomes SimulationFailed.
"""


class InvariantViolated(AssertionError):
    """Names the invariant (I1 to I20 of docs/INVARIANTS.md) and says of what, where, and what was seen."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant
        self.text = text
