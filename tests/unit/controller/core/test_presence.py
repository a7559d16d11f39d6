"""How long the controller's event loop was stopped: the time between two clock readings, minus the timer's interval."""

from controller.core.presence import ABSENCE_MIN_NS, LOOK_INTERVAL_NS, Presence


def test_a_loop_that_looks_at_its_pace_is_never_absent() -> None:
    """The clock is read on time, or late by less than the threshold, so no absence is counted."""
    presence = Presence(1_000)
    now_ns = 1_000
    for late_ns in (0, ABSENCE_MIN_NS // 2, ABSENCE_MIN_NS - 1):
        now_ns += LOOK_INTERVAL_NS + late_ns
        assert presence.look(now_ns) == 0


def test_a_loop_that_was_stopped_was_absent_once() -> None:
    """The absence begins when the timer was due. The next interval begins at the late reading of the clock, so the absence
    is counted once."""
    presence = Presence(0)
    assert presence.look(LOOK_INTERVAL_NS + 20 * ABSENCE_MIN_NS) == 20 * ABSENCE_MIN_NS
    assert presence.look(2 * LOOK_INTERVAL_NS + 20 * ABSENCE_MIN_NS) == 0
