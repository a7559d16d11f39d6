"""The results of an AdminClient method that takes several keys: one future for each key (shell).

Counterpart of KIP-113's DescribeLogDirsResult and of the similar classes in Kafka's AdminClient. A Results is a mapping:
`results[key]` is a future to await, `results.values()` are all futures, and `await results.all()` waits for all of them. The
error of a future that is never awaited is not logged, so a program may await only the keys that it needs.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from admin.errors import AdminError, failure
from common.protocol.errors import ErrorCode

Key = TypeVar("Key")
Value = TypeVar("Value")
Group = TypeVar("Group", bound=Hashable)


class Results(Mapping[Key, "asyncio.Future[Value]"]):
    """The futures of a call, in the order of its keys."""

    def __init__(self, keys: Iterable[Key]) -> None:
        loop = asyncio.get_running_loop()
        self._futures: dict[Key, asyncio.Future[Value]] = {key: loop.create_future() for key in keys}

    def __getitem__(self, key: Key) -> "asyncio.Future[Value]":
        return self._futures[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._futures)

    def __len__(self) -> int:
        return len(self._futures)

    async def all(self) -> dict[Key, Value]:
        """Returns every value. Raises the error of the first key that has one."""
        return {key: await future for key, future in self._futures.items()}

    # --- for the client ------------------------------------------------------------------------------------------
    def complete(self, key: Key, value: Value) -> None:
        """Completes the future of a key. Ignores a key that the caller did not ask for, and a future that is done."""
        future = self._futures.get(key)
        if future is not None and not future.done():
            future.set_result(value)

    def fail(self, keys: Iterable[Key], error: AdminError) -> None:
        """Fails the futures of these keys, except those that are already done."""
        for key in keys:
            future = self._futures.get(key)
            if future is not None and not future.done():
                future.set_exception(error)
                # Mark the exception as retrieved: asyncio would otherwise log it if no task awaits this future.
                future.exception()

    def settle(self, key: Key, code: int, message: str | None, value: Value) -> None:
        """Completes the future of a key, or fails it if `code` is an error."""
        if code == ErrorCode.NONE:
            self.complete(key, value)
        else:
            self.fail([key], failure(code, message))

    def pending(self, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if not self._futures[key].done()]


def grouped(keys: Iterable[Key], group_of: Callable[[Key], Group]) -> dict[Group, list[Key]]:
    """Returns the keys of each group, in their order."""
    groups: dict[Group, list[Key]] = {}
    for key in keys:
        groups.setdefault(group_of(key), []).append(key)
    return groups
