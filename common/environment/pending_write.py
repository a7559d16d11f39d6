"""The outcome of an append that its owner counts and no task awaits (shell).

Appends come in groups. A future for each, with its callback and a turn of the event loop, would cost as much as the rest of
a small append, so the log directory calls the owner instead.
"""

import asyncio
from abc import ABC, abstractmethod
from typing import Protocol


class Settled(Protocol):
    """The part of an asyncio.Future that settles an operation. A PendingWrite has it, too."""

    def done(self) -> bool: ...
    def set_result(self, result: None, /) -> None: ...
    def set_exception(self, error: Exception, /) -> None: ...
    def exception(self) -> BaseException | None: ...


class PendingWrite(ABC):
    """One append. The log directory calls `written` or `failed`, once, in a later turn of the event loop."""

    __slots__ = ("_is_settled",)

    def __init__(self) -> None:
        self._is_settled = False

    @abstractmethod
    def written(self) -> None:
        """The kernel has the bytes. Called while the log directory settles other operations, so it may only take note."""

    @abstractmethod
    def failed(self, error: Exception | None) -> None:
        """The append has failed. The error is None if it was given up unfinished because the process is shutting down."""

    # --- for the log directory -----------------------------------------------------------------------------------
    def done(self) -> bool:
        return self._is_settled

    def set_result(self, result: None, /) -> None:
        self._is_settled = True
        self.written()

    def set_exception(self, error: Exception, /) -> None:
        # A directory that goes offline fails its appends one after the other, and a refused append fails inside the call.
        # Neither must go on in the owner's code.
        self._is_settled = True
        asyncio.get_running_loop().call_soon(self.failed, error)

    def cancel(self) -> None:
        """Gives the append up, because the process is shutting down."""
        self._is_settled = True
        self.failed(None)

    def exception(self) -> None:
        """Does nothing. A future may be in this place, and asyncio logs its error unless `exception` is called."""
        return
