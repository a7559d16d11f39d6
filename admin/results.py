"""One future for each key of a call: what a call about many things returns (shell).

Counterpart of KIP-113's DescribeLogDirsResult and of its siblings in Kafka's AdminClient. It is a mapping: `results[key]` is
a future to await, `results.values()` has all of them, and `await results.all()` waits for everything. The error of a future
that is never awaited is not logged, so a program may look at the keys that it cares for only.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from admin.errors import AdminError

Key = TypeVar("Key")
Value = TypeVar("Value")


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
        """Completes the future of a key. Ignores what was not asked for, and what is complete already."""
        future = self._futures.get(key)
        if future is not None and not future.done():
            future.set_result(value)

    def fail(self, keys: Iterable[Key], error: AdminError) -> None:
        """Fails the futures of these keys that are not complete yet."""
        for key in keys:
            future = self._futures.get(key)
            if future is not None and not future.done():
                future.set_exception(error)
                # Mark the exception as retrieved: asyncio would otherwise log it if no task awaits this future.
                future.exception()

    def pending(self, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if not self._futures[key].done()]
