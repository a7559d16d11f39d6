"""How tools end: one line and status 1 for what the user can fix, a traceback for our own bugs (shell)."""

import os
import sys
from collections.abc import Callable


class ToolError(Exception):
    """An error that the user can fix. The message says in one line what went wrong and how to fix it."""


def run_tool(main: Callable[[], int]) -> int:
    """Runs a tool's main. A ToolError becomes one line on stderr and status 1; Ctrl-C becomes status 130. If the reader of
    the output closes the pipe, as `| head` does, the tool ends with status 0 and says nothing, as Kafka's tools do."""
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
        # Python flushes stdout once more when it exits, and would complain that it cannot.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
