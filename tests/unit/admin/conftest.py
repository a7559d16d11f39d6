"""The fixture that runs a scenario with ten simulated seeds, and once on real sockets."""

from collections.abc import Callable

import pytest

from tests.unit.common.net.worlds import Scenario, run_on_seeds, run_real


@pytest.fixture(params=["simulated", "real"])
def run(request: pytest.FixtureRequest) -> Callable[[Scenario], None]:
    return run_on_seeds if request.param == "simulated" else run_real
