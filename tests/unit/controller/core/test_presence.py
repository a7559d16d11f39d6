"""How long the controller's event loop was stopped: the time between two looks at the clock beyond the timer's interval."""

from controller.core.presence import ABSENCE_MIN_NS, LOOK_INTERVAL_NS, Presence


def test_a_loop_that_looks_at_its_pace_is_never_absent() -> None:
    """The clock is read exactly at the timer's interval, and later by less than the threshold of an absence."""
    presence = Presence(1_000)
    now_ns = 1_000
    for late_ns in (0, ABSENCE_MIN_NS // 2, ABSENCE_MIN_NS - 1):
        now_ns += LOOK_INTERVAL_NS + late_ns
        assert presence.look(now_ns) == 0


def test_a_loop_that_was_stopped_was_absent_once() -> None:
    """The absence is counted from the time when the timer was due. The next interval starts at the late reading of the
    clock."""
    presence = Presence(0)
    assert presence.look(LOOK_INTERVAL_NS + 20 * ABSENCE_MIN_NS) == 20 * ABSENCE_MIN_NS
    assert presence.look(2 * LOOK_INTERVAL_NS + 20 * ABSENCE_MIN_NS) == 0
