"""Writes the value of a setting as text, as it would stand in server.properties (core)."""

from common.configuration.endpoints import Endpoint, HostPort, Voter


def value_text(value: object) -> str | None:
    """Returns the text of a value that a setting's parser returned; None for an optional setting that is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(map(_item_text, value))
    return str(value)


def _item_text(item: object) -> str:
    match item:
        case Endpoint():
            return f"{item.name}://{HostPort(item.host, item.port)}"
        case Voter():
            return f"{item.node_id}@{HostPort(item.host, item.port)}"
        case (str() as name, str() as protocol):
            return f"{name}:{protocol}"
        case _:
            return str(item)
