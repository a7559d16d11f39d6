"""Why the coordinator refuses a request of a consumer group (core)."""

from common.protocol.errors import ErrorCode


class Refused(Exception):
    """The request is answered with this error and text, and changes nothing."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error
        self.message = message
