"""The cleanup after a cluster goes through, whoever interrupts it."""

import signal

import pytest

from tests.integration.cluster import uninterrupted


def test_an_interrupt_waits_until_everything_is_removed() -> None:
    removed: list[str] = []

    def clean_up() -> None:
        with uninterrupted():
            for name in ("first", "second"):
                signal.raise_signal(signal.SIGINT)
                removed.append(name)

    with pytest.raises(KeyboardInterrupt):
        clean_up()
    assert removed == ["first", "second"]
