"""The addresses of a node: where it listens, how others reach it, and where it finds the quorum (core).

These follow from several keys together. What contradicts itself raises ConfigError.
"""

from dataclasses import replace

from common.configuration.endpoints import SUPPORTED_PROTOCOLS, Endpoint, HostPort, Voter
from common.configuration.server import ServerConfig
from common.configuration.settings import ConfigError

# A listener on one of these hosts accepts connections on all interfaces. No client can use the host as an address.
ANY_HOST = ("", "0.0.0.0", "::")


def with_listeners(config: ServerConfig, host_name: str) -> ServerConfig:
    """Returns the configuration with the protocols of its listeners and, for a broker, with what it advertises."""
    controller_names = tuple(name.upper() for name in config.controller_listener_names)
    if not controller_names:
        raise ConfigError("controller.listener.names is missing; it takes the names of the controllers' listeners")
    config = replace(config, controller_listener_names=controller_names)
    listeners = config.listeners or (Endpoint("PLAINTEXT", "127.0.0.1", 9092),)
    config = replace(config, listeners=_with_protocols(config, listeners))
    reserved = f"controller.listener.names={','.join(controller_names)}"
    if config.is_controller and not config.controller_listeners:
        raise ConfigError(f"listeners={_text(listeners)} is not valid; a controller needs a listener of {reserved}")
    if not config.is_broker:
        return config
    if any(listener.name in controller_names for listener in listeners) and not config.is_controller:
        raise ConfigError(f"listeners={_text(listeners)} is not valid; a broker has no listener of {reserved}")
    if not config.broker_listeners:
        raise ConfigError(f"listeners={_text(listeners)} is not valid; a broker needs a listener besides {reserved}")
    config = replace(config, advertised_listeners=_advertised(config, host_name))
    return replace(config, inter_broker_listener_name=_inter_broker_name(config))


def _text(listeners: tuple[Endpoint, ...]) -> str:
    return ",".join(f"{listener.name}://{HostPort(listener.host, listener.port)}" for listener in listeners)


def _with_protocols(config: ServerConfig, listeners: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    protocols = dict(config.listener_security_protocol_map)
    defaults = {name: name for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")}
    if not protocols:
        defaults |= dict.fromkeys(config.controller_listener_names, "PLAINTEXT")
        protocols = defaults
    result: list[Endpoint] = []
    for listener in listeners:
        protocol = protocols.get(listener.name)
        if protocol not in SUPPORTED_PROTOCOLS:
            given = ",".join(f"{name}:{each}" for name, each in config.listener_security_protocol_map)
            found = "no protocol" if protocol is None else f"the protocol {protocol}"
            line = f"listener.security.protocol.map={given}" if given else f"listeners={_text(listeners)}"
            raise ConfigError(
                f"{line} is not valid (listener {listener.name} has {found}); "
                f"it takes {listener.name}:{SUPPORTED_PROTOCOLS[0]} in listener.security.protocol.map in this version"
            )
        result.append(replace(listener, security_protocol=protocol))
    return tuple(result)


def _advertised(config: ServerConfig, host_name: str) -> tuple[Endpoint, ...]:
    advertised = config.advertised_listeners or config.broker_listeners
    controller_names = {listener.name for listener in config.controller_listeners}
    bound = {listener.name for listener in config.broker_listeners}
    result: list[Endpoint] = []
    for listener in advertised:
        if listener.name in controller_names:
            # The controller announces this one. Kafka 4.1's stock server.properties has such an entry.
            continue
        if listener.name not in bound:
            raise ConfigError(
                f"advertised.listeners={_text(advertised)} is not valid; the broker has no listener {listener.name}"
            )
        if listener.host in ANY_HOST[1:] and config.advertised_listeners:
            raise ConfigError(
                f"advertised.listeners={_text(advertised)} is not valid; {listener.host} cannot be reached by a client"
            )
        host = host_name if listener.host in ANY_HOST else listener.host
        result.append(replace(listener, host=host))
    return _with_protocols(config, tuple(result))


def _inter_broker_name(config: ServerConfig) -> str:
    names = [listener.name for listener in config.broker_listeners]
    if config.inter_broker_listener_name is not None:
        name = config.inter_broker_listener_name.upper()
        if name not in names:
            raise ConfigError(f"inter.broker.listener.name={name} is not valid; it takes one of {', '.join(names)}")
        return name
    if "PLAINTEXT" in names:
        return "PLAINTEXT"
    if len(names) == 1:
        return names[0]
    raise ConfigError(f"inter.broker.listener.name is missing; it takes one of {', '.join(names)}")


def with_quorum(config: ServerConfig, advertised: tuple[Endpoint, ...]) -> ServerConfig:
    """Returns the configuration with the nodes to ask for the quorum. `advertised` is what advertised.listeners says."""
    servers = config.controller_quorum_bootstrap_servers
    if config.controller_quorum_voters:
        _check_voters(config)
    elif servers and not config.is_controller:
        # A broker learns from the answers who leads.
        return replace(config, quorum_servers=servers)
    else:
        config = replace(config, controller_quorum_voters=(_sole_voter(config, advertised),), is_standalone=True)
    voters = config.controller_quorum_voters
    return replace(config, quorum_servers=tuple(HostPort(voter.host, voter.port) for voter in voters))


def _check_voters(config: ServerConfig) -> None:
    ids = [voter.node_id for voter in config.controller_quorum_voters]
    listed = ",".join(map(str, ids))
    if config.is_controller and config.node_id not in ids:
        raise ConfigError(
            f"node.id={config.node_id} is not valid; a controller takes one of controller.quorum.voters ({listed})"
        )
    if not config.is_controller and config.node_id in ids:
        raise ConfigError(
            f"node.id={config.node_id} is not valid; a broker takes an id outside controller.quorum.voters ({listed})"
        )
    if config.is_controller and len(ids) > 1:
        # A broker only follows the quorum, which may be one of Apache Kafka's controllers.
        raise ConfigError(f"controller.quorum.voters lists {len(ids)} voters; on a controller it takes one in this version")


def _sole_voter(config: ServerConfig, advertised: tuple[Endpoint, ...]) -> Voter:
    """Returns the voter of a node that has only controller.quorum.bootstrap.servers: the node itself."""
    servers = config.controller_quorum_bootstrap_servers
    if not servers:
        raise ConfigError("controller.quorum.voters is missing; it takes id@host:port separated by commas")
    text = ",".join(map(str, servers))
    if len(servers) > 1:
        raise ConfigError(
            f"controller.quorum.bootstrap.servers={text} is not valid; a cluster has one controller in this version"
        )
    (server,) = servers
    own = [listener for listener in (*config.listeners, *advertised) if listener.name in config.controller_listener_names]
    if server.port not in {listener.port for listener in own}:
        raise ConfigError(
            f"controller.quorum.bootstrap.servers={text} is not this node's controller listener "
            f"({_text(config.controller_listeners)}); a cluster has one controller in this version"
        )
    return Voter(config.node_id, server.host, server.port)


def advertised_controllers(config: ServerConfig, advertised: tuple[Endpoint, ...], host_name: str) -> tuple[Endpoint, ...]:
    """Returns the address of each controller listener: what advertised.listeners says; else its own, if it has a host; else,
    for the listener that the quorum uses, the address by which all other nodes reach it; else the machine's."""
    given = {listener.name: listener for listener in advertised}
    result: list[Endpoint] = []
    for listener in config.controller_listeners:
        explicit = given.get(listener.name, listener)
        address = HostPort(explicit.host, explicit.port)
        if address.host in ANY_HOST:
            voter = next((each for each in config.controller_quorum_voters if each.node_id == config.node_id), None)
            is_quorums = listener.name == config.controller_listener_names[0]
            address = HostPort(voter.host, voter.port) if is_quorums and voter else HostPort(host_name, address.port)
        result.append(replace(listener, host=address.host, port=address.port))
    return tuple(result)
