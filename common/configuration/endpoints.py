"""The address grammars in server.properties: listeners, voters and plain host:port pairs (core).

An IPv6 host is written in brackets, as in Kafka. A listener with an empty host listens on all interfaces. The host stays
empty here; `load_server_config` fills in the host to advertise, because it knows the machine's host name.
"""

from dataclasses import dataclass

SUPPORTED_PROTOCOLS = ("PLAINTEXT",)
_NODE_ID_MAX = 2**31 - 1
_PORT_MAX = 65_535


@dataclass(frozen=True, slots=True)
class HostPort:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener: its name, its security protocol, and the address it binds to or advertises."""

    name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


@dataclass(frozen=True, slots=True)
class Voter:
    node_id: int
    host: str
    port: int


def parse_host_port(text: str, *, port_min: int = 0) -> HostPort:
    """Parses `host:port` or `[v6]:port`, port `port_min` to 65535. Raises ValueError."""
    host, separator, port = text.strip().rpartition(":")
    if not separator or "://" in host or not port.isascii() or not port.removeprefix("-").isdecimal():
        raise ValueError(f"'{text}' is not host:port")
    if not _is_number(port, _PORT_MAX) or int(port) < port_min:
        raise ValueError(f"'{text}' has a port out of range ({port_min} to {_PORT_MAX})")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"'{text}' has an IPv6 host without brackets")
    return HostPort(host, int(port))


def parse_address(text: str) -> HostPort:
    """Parses the `host:port` by which others reach a node: unlike a listener's, with a host and a port other than 0. Raises
    ValueError."""
    address = parse_host_port(text, port_min=1)
    if not address.host:
        raise ValueError(f"'{text}' has no host")
    return address


def parse_host_ports(text: str) -> tuple[HostPort, ...]:
    """Parses `host:port,…`, each the address of a node. Raises ValueError."""
    return tuple(parse_address(part) for item in text.split(",") if (part := item.strip()))


def _is_number(text: str, at_most: int) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 10 and int(text) <= at_most


def parse_listeners(text: str) -> tuple[Endpoint, ...]:
    """Parses `NAME://host:port,…`. Names must be unique, and so must addresses, except those with port 0. Raises
    ValueError."""
    endpoints: list[Endpoint] = []
    for part in filter(None, (item.strip() for item in text.split(","))):
        name, separator, address = part.partition("://")
        if not separator or not name:
            raise ValueError(f"'{part}' is not NAME://host:port")
        host_port = parse_host_port(address)
        endpoints.append(Endpoint(name.upper(), host_port.host, host_port.port))
    names = [endpoint.name for endpoint in endpoints]
    if len(set(names)) != len(names):
        raise ValueError("a listener name occurs twice")
    addresses = [(endpoint.host, endpoint.port) for endpoint in endpoints if endpoint.port != 0]
    if len(set(addresses)) != len(addresses):
        raise ValueError("an address occurs twice")
    if not endpoints:
        raise ValueError("no listener is given")
    return tuple(endpoints)


def parse_voters(text: str) -> tuple[Voter, ...]:
    """Parses `id@host:port,…` with unique ids. Raises ValueError."""
    voters: list[Voter] = []
    for part in filter(None, (item.strip() for item in text.split(","))):
        node_id, separator, address = part.partition("@")
        if not separator or not _is_number(node_id, _NODE_ID_MAX):
            raise ValueError(f"'{part}' is not id@host:port")
        host_port = parse_address(address)
        voters.append(Voter(int(node_id), host_port.host, host_port.port))
    if len({voter.node_id for voter in voters}) != len(voters):
        raise ValueError("a voter id occurs twice")
    return tuple(voters)


def parse_protocol_map(text: str) -> tuple[tuple[str, str], ...]:
    """Parses `NAME:PROTOCOL,…`. Raises ValueError."""
    pairs: list[tuple[str, str]] = []
    for part in filter(None, (item.strip() for item in text.split(","))):
        name, separator, protocol = part.partition(":")
        if not separator:
            raise ValueError(f"'{part}' is not NAME:PROTOCOL")
        pairs.append((name.strip().upper(), protocol.strip().upper()))
    return tuple(pairs)
