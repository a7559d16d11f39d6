"""A network of namespaces on one machine. Each link can be cut in each direction.

Each node has a namespace of its own. A bridge, also in a namespace, joins the nodes with each other and with the tests,
which are the node `CLIENT`. The sender of a dropped packet gets no error and notices the loss only by a time-out. TCP keeps
retransmitting for minutes, so data may arrive after the link is mended.
"""

import dataclasses
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.cluster import WatchedCluster
from tools.errors import ToolError
from tools.lab.disk_lab import run

CLIENT = "client"
CLIENT_HOST = 254
RULES = "add table inet lab; add chain inet lab input { type filter hook input priority 0; }"


class Network:
    """The namespaces of the nodes. `network` creates and removes them."""

    def __init__(self, names: Sequence[str]) -> None:
        self._prefix = f"lab{os.getpid()}"
        self._hosts = {name: number for number, name in enumerate(names, start=1)} | {CLIENT: CLIENT_HOST}
        self._net = _free_net()

    def address(self, name: str) -> str:
        """Returns the node's IPv4 address."""
        return f"{self._net}.{self._hosts[name]}"

    def command(self, name: str) -> tuple[str, ...]:
        """Returns the command prefix that starts a process in the node's namespace."""
        # `ip netns exec` would also give each process a mount namespace, and a disk that the test unmounts would stay
        # mounted there.
        return ("nsenter", f"--net=/run/netns/{self._space(name)}")

    def cut(self, sender: str, receiver: str) -> None:
        """Drops what `sender` sends to `receiver` from now on. The other direction does not change."""
        self._rule(receiver, f"ip saddr {self.address(sender)} drop")

    def cut_off(self, name: str, others: Sequence[str]) -> None:
        """Cuts both directions between the node and each of the others."""
        for other in others:
            self.cut(name, other)
            self.cut(other, name)

    def reset(self, sender: str, receiver: str) -> None:
        """Answers what `sender` sends to `receiver` with a reset from now on. Use it for one direction of a link only:
        if both directions were reset, each node would drop the resets that the other one sends."""
        self._rule(receiver, f"ip saddr {self.address(sender)} meta l4proto tcp reject with tcp reset")

    def mend(self) -> None:
        """Opens every link again."""
        for name in self._hosts:
            if name != CLIENT:
                self._in(name, "nft", "flush", "chain", "inet", "lab", "input")

    def _rule(self, receiver: str, rule: str) -> None:
        if receiver == CLIENT:
            raise ToolError("the tests' own namespace gets no rules; cut the other direction")
        self._in(receiver, "nft", "add", "rule", "inet", "lab", "input", *rule.split())

    def _space(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def _in(self, name: str, *command: str) -> None:
        run(*self.command(name), *command)

    def make(self) -> None:
        switch = self._space("switch")
        run("ip", "netns", "add", switch)
        run("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        run("ip", "-n", switch, "link", "set", "bridge", "up")
        for name, number in self._hosts.items():
            port, end = f"port{number}", f"{self._prefix}c" if name == CLIENT else "eth0"
            if name == CLIENT:
                run("ip", "link", "add", end, "type", "veth", "peer", "name", port, "netns", switch)
                own: tuple[str, ...] = ()
            else:
                run("ip", "netns", "add", self._space(name))
                own = ("-n", self._space(name))
                run("ip", *own, "link", "add", end, "type", "veth", "peer", "name", port, "netns", switch)
                run("ip", *own, "link", "set", "lo", "up")
                self._in(name, "nft", RULES)
            run("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")
            run("ip", *own, "address", "add", f"{self.address(name)}/24", "dev", end)
            run("ip", *own, "link", "set", end, "up")

    def take_away(self) -> None:
        if Path(f"/sys/class/net/{self._prefix}c").exists():
            run("ip", "link", "delete", f"{self._prefix}c")
        for name in ("switch", *self._hosts):
            if name != CLIENT and Path(f"/run/netns/{self._space(name)}").exists():
                run("ip", "netns", "delete", self._space(name))


@contextmanager
def network(names: Sequence[str]) -> Iterator[Network]:
    """Creates a network and removes it afterwards. Raises ToolError if none can be created here."""
    made = Network(names)
    try:
        made.make()
        yield made
    finally:
        made.take_away()


def why_no_network() -> str | None:
    """Returns None if network namespaces can be created and cut here, else the reason. Tries it with a small network."""
    try:
        with network(["trial"]) as trial:
            trial.cut(CLIENT, "trial")
            trial.mend()
    except ToolError as error:
        return str(error).splitlines()[0]
    return None


def need_network() -> None:
    """Skips the test if no network can be created here. In CI the test fails instead, so that the missing coverage is
    noticed."""
    reason = why_no_network()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must be able to make network namespaces: {reason}")
    pytest.skip(f"no network namespaces here, this was NOT tested: {reason}")


def spread_over(made: Network, cluster: WatchedCluster) -> None:
    """Puts each node into its namespace. The cluster must be formatted and must not run yet."""
    controller = made.address(cluster.controller.files.name)
    voter = f"{cluster.controller.files.node_id}@{controller}:{cluster.controller.files.port}"
    for name, node in cluster.nodes.items():
        listener = "CONTROLLER" if node is cluster.controller else "PLAINTEXT"
        node.files = dataclasses.replace(node.files, host=made.address(name))
        node.prefix = made.command(name)
        cluster.set_properties(node, listeners=f"{listener}://{node.files.address}", controller_quorum_voters=voter)


def _free_net() -> str:
    """Returns the first three numbers of an unused /24 network in 198.18.0.0/16, which is reserved for network tests."""
    used = subprocess.run(["ip", "-4", "address"], capture_output=True, text=True, check=True).stdout
    start = os.getpid()
    return next(net for net in (f"198.18.{(start + n) % 256}" for n in range(256)) if f" {net}." not in used)
