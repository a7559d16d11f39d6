"""Runs the work of a tool with an AdminClient (shell).

An AdminError ends a tool with one line on stderr. While the client retries, its warnings appear on stderr too, so that the
user notices a mistyped address before the timeout.
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import structlog

from admin.client import AdminClient
from admin.config import AdminConfig
from admin.errors import AdminError
from common.environment.real import RealEnvironment
from common.protocol.messages.describe_cluster import EndpointType
from tools.errors import ToolError
from tools.node.configuration_file import parse_properties

Result = TypeVar("Result")


def run_admin(
    bootstrap_servers: str | None,
    work: Callable[[AdminClient], Coroutine[Any, Any, Result]],
    *,
    command_config: str | None = None,
    bootstrap_controllers: str | None = None,
) -> Result:
    """Runs `work` with a client and returns its result. Exactly one of the two lists of addresses is given.
    `command_config` is the path of a properties file with the client's settings. Raises ToolError."""
    try:
        config = AdminConfig() if command_config is None else _read_config(command_config)
        return asyncio.run(_run(bootstrap_servers, bootstrap_controllers, config, work))
    except AdminError as error:
        raise ToolError(str(error)) from error


async def _run(
    servers: str | None,
    controllers: str | None,
    config: AdminConfig,
    work: Callable[[AdminClient], Coroutine[Any, Any, Result]],
) -> Result:
    env = RealEnvironment(config.client_id)
    # Do not use the process's logger: its configuration belongs to the program, and its output would mix with the tool's.
    env.log = structlog.wrap_logger(
        structlog.WriteLogger(sys.stderr),
        processors=[structlog.processors.add_log_level, structlog.dev.ConsoleRenderer(colors=False)],
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
    )
    kind = EndpointType.BROKER if controllers is None else EndpointType.CONTROLLER
    async with AdminClient(servers or controllers or "", config=config, env=env, endpoint_type=kind) as admin:
        return await work(admin)


def _read_config(path: str) -> AdminConfig:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ToolError(f"cannot read the configuration {path}: {error.strerror}") from error
    return AdminConfig.from_properties(parse_properties(content, path))
