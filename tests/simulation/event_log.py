"""Formats the event log of a run for human readers: one line for each event, with virtual time, node, directory and other
fields."""

from collections.abc import Iterable, Iterator, Mapping

from tests.simulation.environment import SimulatedEvent

# The fields that say where something happened come first, in this order.
PLACES = ("log_dir", "directory_id", "topic", "partition")


def readable(events: Iterable[SimulatedEvent]) -> Iterator[str]:
    """Yields one line for each event."""
    for event in events:
        fields = {key: value for key, value in event.fields.items() if value not in (None, "", ())}
        first = [key for key in PLACES if key in fields]
        rest = [key for key in fields if key not in first]
        facts = " ".join(f"{key}={_text(fields[key])}" for key in (*first, *rest))
        mark = "!" if event.level in ("error", "critical") else " "
        yield f"{event.at_ns / 1e9:11.6f}s {mark}{event.node:<11} {event.name:<32} {facts}".rstrip()


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_text(item)}" for key, item in value.items()) + "}"
    text = str(value)
    return repr(text) if " " in text else text
