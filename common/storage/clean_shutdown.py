"""The marker of an orderly end in each log directory, `.kafka_cleanshutdown` (shell).

Answers to Kafka's CleanShutdownFileHandler (KIP-966 gave it the broker epoch). It is written when every log of the directory
was flushed and closed, and taken away before anything is written again. Easy to get wrong: taking it away must be durable
before the first append, or a crash later finds the old marker and trusts logs that need recovery; and a marker that cannot
be read still says "clean", only without an epoch, as older Kafka versions wrote an empty file.
"""

import json
from collections.abc import Awaitable
from dataclasses import dataclass

from common.environment.interface import LogDir
from common.ids import BrokerEpoch
from common.storage.names import CLEAN_SHUTDOWN_FILE

VERSION = 0
_EPOCH_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CleanShutdown:
    """The directory was left in order, by this incarnation of the broker if that is known."""

    broker_epoch: BrokerEpoch | None


def format_clean_shutdown(broker_epoch: BrokerEpoch) -> bytes:
    """The marker's content."""
    return json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def parse_clean_shutdown(content: bytes) -> CleanShutdown:
    """Never raises: what cannot be read has no epoch."""
    try:
        fields = json.loads(content)
    except (ValueError, RecursionError):
        return CleanShutdown(None)
    if not isinstance(fields, dict) or fields.get("version") != VERSION:
        return CleanShutdown(None)
    epoch = fields.get("brokerEpoch")
    if not isinstance(epoch, int) or isinstance(epoch, bool) or not 0 <= epoch <= _EPOCH_MAX:
        return CleanShutdown(None)
    return CleanShutdown(BrokerEpoch(epoch))


async def load_clean_shutdown(log_dir: LogDir) -> CleanShutdown | None:
    """None after a crash, or in a new directory."""
    content = await log_dir.read_file(CLEAN_SHUTDOWN_FILE)
    return None if content is None else parse_clean_shutdown(content)


def store_clean_shutdown(log_dir: LogDir, broker_epoch: BrokerEpoch) -> Awaitable[None]:
    """Last operation but one on a directory: everything in it has been flushed."""
    return log_dir.replace_file(CLEAN_SHUTDOWN_FILE, format_clean_shutdown(broker_epoch))


async def remove_clean_shutdown(log_dir: LogDir) -> None:
    """Durable when it returns."""
    await log_dir.remove(CLEAN_SHUTDOWN_FILE)
    await log_dir.fsync_dir()
