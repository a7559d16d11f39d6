"""The heap moves to huge pages where it is used, and what is unused takes no memory."""

import subprocess
import sys

from common.environment.huge_pages import _writable_regions

MAPS = """\
00400000-00401000 r--p 00000000 08:02 173521                             /usr/bin/python3
12000000-12800000 rw-p 00000000 00:00 0                                  [heap]
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7f0000100000-7f0000400000 rw-p 00000000 00:00 0
7f0000400000-7f0000500000 ---p 00000000 00:00 0
7f0000600000-7f0000700000 rw-p 00000000 08:02 173522                     /usr/lib/with a space.so
7f0000700000-7f0000800000 rw-s 00000000 00:01 1024                       /dev/zero (deleted)
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0                          [stack]
"""

IN_A_NEW_PROCESS = """
import mmap
import broker.daemon
from common.environment.huge_pages import move_heap_to_huge_pages

def kilobytes(name):
    return next(int(line.split()[1]) for line in open("/proc/self/smaps_rollup") if line.startswith(name))

unused = mmap.mmap(-1, 64 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
before = kilobytes("Rss:")
moved = move_heap_to_huge_pages()
print(moved // 1024, kilobytes("AnonHugePages:"), kilobytes("Rss:") - before, before)
"""


def test_adjacent_anonymous_mappings_are_one_region() -> None:
    """Files, shared and protected mappings, and the stack are left out."""
    assert [region for region in _writable_regions(MAPS) if region[0]] == [
        (0x12000000, 0x12800000),
        (0x7F0000000000, 0x7F0000400000),
    ]


def test_what_is_used_is_moved_and_takes_hardly_more_memory() -> None:
    """How much depends on the kernel, which may refuse all of it."""
    answer = subprocess.run([sys.executable, "-c", IN_A_NEW_PROCESS], check=True, capture_output=True, text=True)
    moved, huge, grown, before = map(int, answer.stdout.split())
    assert moved == huge
    assert grown <= moved // 4 + 1024
    assert moved < before
