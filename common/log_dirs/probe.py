"""Detects a dead, hung, read-only, swapped or vanished disk even when it is idle (shell).

Listing a directory or calling stat is not enough: on a shut-down ext4 both still succeed while every write returns EIO.
`LogDir.probe` writes, syncs, renames and removes a small file, and reads it back without the page cache. A failed probe is
reported through `on_error` like any other error, so this module decides nothing. A full disk fails the probe but stays
online. Its free space must still be measured, or new replicas would continue to be placed on it.
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
    """Probes until cancelled or until the directory is offline. Passes the free space to `on_space` after each probe."""
    next_ns = env.now_ns()
    while is_online():
        # Count the interval from the start of the last probe; otherwise a slow disk would be probed less often.
        next_ns = max(next_ns + interval_ns, env.now_ns())
        await env.sleep_until(next_ns)
        try:
            await probe_unless_full(log_dir)
            on_space(await log_dir.statvfs())
        except LogDirError:
            # The failure channel already has the error and decides whether the directory goes offline.
            continue


async def probe_unless_full(log_dir: LogDir) -> bool:
    """Probes once. Returns False if the disk has no space for the probe. Raises all other LogDirErrors."""
    try:
        await log_dir.probe()
    except LogDirError as error:
        if classify(error) is not Verdict.DIRECTORY_FULL:
            raise
        return False
    return True
