"""Waits until an answer is as expected.

A client may ask any broker, and each broker learns of a change when it has fetched the metadata log. So what one broker has
answered about a change is true of the next one a moment later.
"""

import time
from collections.abc import Callable

SECONDS_MAX = 60.0
POLL_SECONDS = 0.1


def until_equal(actual: Callable[[], object], expected: object) -> None:
    """Asks again until the answer is this."""
    deadline = time.monotonic() + SECONDS_MAX
    while (found := actual()) != expected and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    assert found == expected, f"{found}, expected was {expected}"
