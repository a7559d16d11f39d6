"""A network of namespaces on one machine whose ways can be cut one by one, in one direction.

Each node lives in a namespace of its own; a bridge, in a namespace too, joins them with each other and with the tests, which
are the node `CLIENT`. Easy to get wrong: a packet that is dropped is no error to anybody; only time-outs tell, and TCP sends
again for minutes once the way is mended.
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
    """Namespaces by the names of their nodes. Made and taken away by `network`."""

    def __init__(self, names: Sequence[str]) -> None:
        self._prefix = f"lab{os.getpid()}"
        self._hosts = {name: number for number, name in enumerate(names, start=1)} | {CLIENT: CLIENT_HOST}
        self._net = _free_net()

    def address(self, name: str) -> str:
        """The node's IPv4 address."""
        return f"{self._net}.{self._hosts[name]}"

    def command(self, name: str) -> tuple[str, ...]:
        """What starts a process in the node's namespace."""
        # Not `ip netns exec`: that would give each process mounts of its own, and a disk unmounted here would stay there.
        return ("nsenter", f"--net=/run/netns/{self._space(name)}")

    def cut(self, sender: str, receiver: str) -> None:
        """From now on what the one sends the other is dropped; the other direction is as it was."""
        self._rule(receiver, f"ip saddr {self.address(sender)} drop")

    def cut_off(self, name: str, others: Sequence[str]) -> None:
        """Both directions, to and from each of the others."""
        for other in others:
            self.cut(name, other)
            self.cut(other, name)

    def reset(self, sender: str, receiver: str) -> None:
        """From now on what the one sends the other is answered with a reset. Not in both directions at once: then the
        resets themselves would be dropped."""
        self._rule(receiver, f"ip saddr {self.address(sender)} meta l4proto tcp reject with tcp reset")

    def mend(self) -> None:
        """Every way is open."""
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
    """A network that is gone afterwards. Raises ToolError where none can be made."""
    made = Network(names)
    try:
        made.make()
        yield made
    finally:
        made.take_away()


def why_no_network() -> str | None:
    """None when namespaces can be made and cut here, else the reason; found by making one."""
    try:
        with network(["trial"]) as trial:
            trial.cut(CLIENT, "trial")
            trial.mend()
    except ToolError as error:
        return str(error).splitlines()[0]
    return None


def need_network() -> None:
    """Skips the test where no network can be made; fails it in CI, where nothing may go untested unnoticed."""
    reason = why_no_network()
    if reason is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must be able to make network namespaces: {reason}")
    pytest.skip(f"no network namespaces here, this was NOT tested: {reason}")


def spread_over(made: Network, cluster: WatchedCluster) -> None:
    """Puts each node of a cluster that was formatted and does not run yet into its namespace."""
    controller = made.address(cluster.controller.files.name)
    voter = f"{cluster.controller.files.node_id}@{controller}:{cluster.controller.files.port}"
    for name, node in cluster.nodes.items():
        listener = "CONTROLLER" if node is cluster.controller else "PLAINTEXT"
        node.files = dataclasses.replace(node.files, host=made.address(name))
        node.prefix = made.command(name)
        cluster.set_properties(node, listeners=f"{listener}://{node.files.address}", controller_quorum_voters=voter)


def _free_net() -> str:
    """The first three numbers of an address range of the kind for tests of networks that nothing here uses."""
    used = subprocess.run(["ip", "-4", "address"], capture_output=True, text=True, check=True).stdout
    start = os.getpid()
    return next(net for net in (f"198.18.{(start + n) % 256}" for n in range(256)) if f" {net}." not in used)
