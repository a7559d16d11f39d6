"""The clean shutdown marker of a log directory, `.kafka_cleanshutdown` (shell).

Counterpart of Kafka's CleanShutdownFileHandler; KIP-966 added the broker epoch. The marker is written after every log of the
directory has been flushed and closed. The next start removes the marker before it writes to any log. The removal must be
durable before the first append. Otherwise the next start after a crash would find the old marker and trust logs that need
recovery. A marker that cannot be parsed still means a clean shutdown, just without an epoch: older Kafka versions wrote an
empty file.
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
    """The content of the marker. `broker_epoch` is the epoch of the broker that shut down, None if unknown."""

    broker_epoch: BrokerEpoch | None


def format_clean_shutdown(broker_epoch: BrokerEpoch) -> bytes:
    """Returns the content of the marker file."""
    return json.dumps({"version": VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":")).encode()


def parse_clean_shutdown(content: bytes) -> CleanShutdown:
    """Parses the marker. Never raises: content that cannot be parsed has no epoch."""
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
    """Returns the marker; None after a crash, or in a new directory. Raises LogDirError."""
    content = await log_dir.read_file(CLEAN_SHUTDOWN_FILE)
    return None if content is None else parse_clean_shutdown(content)


def store_clean_shutdown(log_dir: LogDir, broker_epoch: BrokerEpoch) -> Awaitable[None]:
    """Writes the marker. Call it only when everything else in the directory has been flushed."""
    return log_dir.replace_file(CLEAN_SHUTDOWN_FILE, format_clean_shutdown(broker_epoch))


async def remove_clean_shutdown(log_dir: LogDir) -> None:
    """Removes the marker. The removal is durable when this returns."""
    await log_dir.remove(CLEAN_SHUTDOWN_FILE)
    await log_dir.fsync_dir()
