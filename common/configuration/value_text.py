"""Converts the value of a setting to the text that server.properties would contain (core)."""

from common.configuration.endpoints import Endpoint, HostPort, Voter


def value_text(value: object) -> str | None:
    """Returns the text of a parsed value; None for an optional setting that is not set."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # As Java writes it.
        return repr(value).replace("e+", "E").replace("e", "E")
    if isinstance(value, tuple):
        return ",".join(map(_item_text, value))
    return str(value)


def _item_text(item: object) -> str:
    match item:
        case Endpoint():
            return f"{item.name}://{HostPort(item.host, item.port)}"
        case Voter():
            return f"{item.node_id}@{HostPort(item.host, item.port)}"
        case (str() as name, str() | int() as value):
            return f"{name}:{value}"
        case _:
            return str(item)
