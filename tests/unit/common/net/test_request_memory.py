"""RequestMemory: what a log directory may hold of the memory for requests."""

import pytest

from common.ids import DirectoryId, Uuid
from common.net.request_memory import RequestMemory

LIMIT = 1600
DISKS = [DirectoryId(Uuid(bytes([100 + number] * 16))) for number in range(7)]


def memory_of(limit_bytes: int = LIMIT) -> RequestMemory:
    return RequestMemory(limit_bytes, lambda: None)


def take(memory: RequestMemory, directory_id: DirectoryId, size: int = 1) -> None:
    """Adds a request that waits for the directory."""
    memory.change(size)
    memory.wait_for(directory_id, size)


def give(memory: RequestMemory, directory_id: DirectoryId, size: int = 1) -> None:
    """Ends such a wait."""
    memory.change(-size)
    memory.waited_for(directory_id, size)


@pytest.mark.parametrize("slow", range(1, len(DISKS) + 1))
def test_slow_directories_leave_memory_for_the_others(slow: int) -> None:
    """Requests arrive for several slow directories in turn, as long as their connections may read. Each directory gets the
    same share, and as much stays free. Then requests arrive on other connections, which no share stops, until the
    directories take no more: even then some memory is free."""
    memory = memory_of()
    disks = DISKS[:slow]
    while any(not memory.is_over_share(disk) for disk in disks):
        for disk in disks:
            if not memory.is_over_share(disk):
                take(memory, disk)
    share = LIMIT // (slow + 1)
    held = [memory._waiting_bytes[disk] for disk in disks]
    assert all(share - 1 <= bytes_held <= share + 1 for bytes_held in held), held
    assert LIMIT - memory.used_bytes >= share - slow
    while any(memory.has_room_for(disk) for disk in disks):
        for disk in disks:
            if memory.has_room_for(disk):
                take(memory, disk)
    assert LIMIT - memory.used_bytes >= LIMIT // (2 * slow + 1) - slow


def test_a_directory_without_requests_takes_one_even_if_the_memory_is_full() -> None:
    """A request may be larger than the whole limit, and requests that wait for no directory may fill the memory. A directory
    with nothing to do still takes a request, and has a small share."""
    memory = memory_of()
    memory.change(2 * LIMIT)
    assert memory.has_room_for(DISKS[0])
    floor = LIMIT // 16
    take(memory, DISKS[0], floor)
    assert not memory.is_over_share(DISKS[0])
    take(memory, DISKS[0], floor)
    assert memory.is_over_share(DISKS[0])
    assert memory.has_room_for(DISKS[0])
    take(memory, DISKS[0])
    assert not memory.has_room_for(DISKS[0])
    assert memory.has_room_for(DISKS[1])


def test_a_directory_that_has_caught_up_has_its_whole_share_again() -> None:
    memory = memory_of()
    take(memory, DISKS[0], LIMIT)
    assert memory.is_over_share(DISKS[0])
    give(memory, DISKS[0], LIMIT)
    assert not memory.is_over_share(DISKS[0])
    assert memory._waiting_bytes == {}


def test_without_a_limit_no_directory_is_stopped() -> None:
    memory = memory_of(2**63 - 1)
    take(memory, DISKS[0], 1 << 40)
    assert not memory.is_over_share(DISKS[0])
    assert memory.has_room_for(DISKS[0])
