"""Finds a dead, hung, read-only, swapped or vanished disk while nobody writes to it (shell).

Listing or stat-ing is no probe: on a shut-down ext4 both still succeed while every write returns EIO. `LogDir.probe` writes,
syncs, renames, removes and reads around the cache; its errors take the usual way through `on_error`, so nothing is decided
here. Easy to get wrong: a full disk fails the probe and stays online, and its free space has to be looked at all the same,
or new replicas would go on being placed there.
"""

from collections.abc import Callable

from common.environment.disk_errors import Verdict, classify
from common.environment.interface import Environment, LogDir, LogDirError, SpaceStat


async def probe_log_dir(
    env: Environment,
    log_dir: LogDir,
    *,
    interval_ns: int,
    is_online: Callable[[], bool],
    on_space: Callable[[SpaceStat], None],
) -> None:
    """Probes until cancelled, or until the directory is offline. `on_space` gets free space after each probe."""
    next_ns = env.now_ns()
    while is_online():
        # An interval after the last one began, or a slow disk would be probed less.
        next_ns = max(next_ns + interval_ns, env.now_ns())
        await env.sleep_until(next_ns)
        try:
            await probe_unless_full(log_dir)
            on_space(await log_dir.statvfs())
        except LogDirError:
            # The failure channel has it already; whether the directory goes offline is decided there.
            continue


async def probe_unless_full(log_dir: LogDir) -> bool:
    """Probes once. False for a disk that has no room for the probe: what it holds can be read. Raises other LogDirErrors."""
    try:
        await log_dir.probe()
    except LogDirError as error:
        if classify(error) is not Verdict.DIRECTORY_FULL:
            raise
        return False
    return True
