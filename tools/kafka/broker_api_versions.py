"""kafka-broker-api-versions: shows which APIs and versions each broker serves, with Kafka's flags and output (shell).

Counterpart of Kafka's BrokerApiVersionsCommand. `usable` is the version that this tool's own client would choose.
"""

import argparse
import sys

from admin.client import AdminClient
from admin.errors import AdminError
from common.protocol.api_keys import ApiKey
from common.protocol.messages.api_versions import ApiVersion
from common.protocol.registry import APIS
from tools.arguments import ToolParser, add_bootstrap
from tools.errors import run_tool
from tools.kafka.admin_run import run_admin
from tools.kafka.api_names import API_NAMES


def main(argv: list[str] | None = None) -> int:
    """Runs the tool and returns its exit status."""
    arguments = command_line().parse_args(argv)
    return run_tool(lambda: _run(arguments))


def entry() -> None:
    sys.exit(main())


def command_line() -> ToolParser:
    parser = ToolParser("kafka-broker-api-versions", "Show which APIs and versions each broker serves.")
    add_bootstrap(parser)
    return parser


def _run(arguments: argparse.Namespace) -> int:
    async def work(admin: AdminClient) -> int:
        status = 0
        for broker in (await admin.describe_cluster()).brokers:
            title = f"{broker.host}:{broker.port} (id: {broker.broker_id} rack: {broker.rack or 'null'} isFenced: false) ->"
            try:
                _print(title, (await admin.api_versions(broker.broker_id)).api_keys)
            except AdminError as error:
                # The other brokers are worth showing all the same.
                print(f"{title} ERROR: {error}")
                status = 1
        return status

    return run_admin(arguments.bootstrap_server, work, command_config=arguments.command_config)


def _print(title: str, served: list[ApiVersion]) -> None:
    by_key = {each.api_key: each for each in served}
    lines = [f"\t{_name(key)}: {_versions(by_key.get(key))}" for key in sorted({*API_NAMES, *by_key})]
    print(f"{title} (\n" + ",\n".join(lines) + "\n)")


def _name(key: int) -> str:
    return f"{API_NAMES[key]}({key})" if key in API_NAMES else f"UNKNOWN({key})"


def _versions(served: ApiVersion | None) -> str:
    if served is None:
        return "UNSUPPORTED"
    low, high = served.min_version, served.max_version
    return f"{low if low == high else f'{low} to {high}'}{_usable(served)}"


def _usable(served: ApiVersion) -> str:
    key = next((key for key in APIS if key == served.api_key), None)
    if key is None:
        return ""
    ours = APIS[ApiKey(key)].versions
    if served.max_version < ours.first:
        return " [unusable: node too old]"
    if served.min_version > ours.last:
        return " [unusable: node too new]"
    return f" [usable: {min(ours.last, served.max_version)}]"


if __name__ == "__main__":
    entry()
