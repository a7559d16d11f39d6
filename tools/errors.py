"""How tools fail: one line and status 1 for what the user can fix, a traceback for our own bugs (shell)."""

import sys
from collections.abc import Callable


class ToolError(Exception):
    """An error that the user can fix. The message says in one line what went wrong and how to fix it."""


def run_tool(main: Callable[[], int]) -> int:
    """Runs a tool's main. A ToolError becomes one line on stderr and status 1; Ctrl-C becomes status 130."""
    try:
        return main()
    except ToolError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output closed the pipe, as `| head` does. Close stderr too. Otherwise Python would complain there
        # that stdout cannot be flushed.
        sys.stderr.close()
        return 1
