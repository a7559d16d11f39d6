"""How tools end: one line and status 1 for what the user can fix, a traceback for our own bugs (shell)."""

import contextlib
import errno
import os
import sys
from collections.abc import Callable
from typing import Final

# The errors that only a write can have. Where a tool reads a file, it names the file itself if that fails.
_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ToolError(Exception):
    """An error that the user can fix. The message says in one line what went wrong and how to fix it."""


def run_tool(main: Callable[[], int]) -> int:
    """Runs a tool's main. A ToolError becomes one line on stderr and status 1, as does a full disk under the output; Ctrl-C
    becomes status 130. If the reader of the output closes the pipe, as `| head` does, the tool ends with status 0 and says
    nothing, as Kafka's tools do."""
    try:
        status = main()
        sys.stdout.flush()
        return status
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        _discard_output()
        return 0
    except OSError as error:
        if not is_unwritten_output(error):
            raise
        _discard_output()
        # The errors may go to the same full disk.
        with contextlib.suppress(OSError):
            print(f"the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


def is_unwritten_output(error: OSError) -> bool:
    """Whether this is an error of the tool's output, and not of a file that it reads or opens."""
    return error.filename is None and (isinstance(error, BrokenPipeError) or error.errno in _NO_ROOM)


def open_missing_streams() -> None:
    """Opens /dev/null for each standard stream that the process was started without (`<&-`, `>&-`). Otherwise the next file
    or connection would get its number, and what a library prints would land there."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


def _discard_output() -> None:
    # Python flushes stdout once more when it exits, and would complain that it cannot.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
