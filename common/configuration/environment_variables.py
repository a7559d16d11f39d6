"""Configuration by environment variables, as in Kafka's official image (core)."""

from collections.abc import Mapping

# Environment variables that the official image's start scripts read. They are not configuration keys.
SCRIPT_VARIABLES = frozenset(
    """
    KAFKA_CLUSTERS KAFKA_DEBUG KAFKA_DEBUG_FLAG KAFKA_DEBUG_SUSPEND_FLAG KAFKA_GC_LOG_OPTS KAFKA_HEAP_OPTS KAFKA_HOME
    KAFKA_JMX_HOSTNAME KAFKA_JMX_OPTS KAFKA_JMX_PORT KAFKA_JVM_PERFORMANCE_OPTS KAFKA_LOG4J_LOGGERS KAFKA_LOG4J_OPTS
    KAFKA_LOG4J_ROOT_LOGLEVEL KAFKA_LOG4J_TOOLS_ROOT_LOGLEVEL KAFKA_OPTS KAFKA_PREFIX KAFKA_USER KAFKA_VERSION
    """.split()
)


def properties_from_environment(variables: Mapping[str, str]) -> dict[str, str]:
    """Converts environment variables to properties, as the official image does: KAFKA_LOG_DIRS becomes log.dirs. In a name,
    `__` stands for `_` and `___` for `-`."""
    properties: dict[str, str] = {}
    for name in sorted(variables):
        if not name.startswith("KAFKA_") or name in SCRIPT_VARIABLES:
            continue
        key = name.removeprefix("KAFKA_").lower()
        key = key.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
        properties[key] = variables[name]
    return properties
