"""The smallest server.properties of a node of each role."""

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "100@localhost:9093",
    "log.dirs": "/d1,/d2/",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "100",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "100@localhost:9093",
    "listeners": "CONTROLLER://:9093",
    "log.dirs": "/m",
}
