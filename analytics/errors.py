"""What a person can mend, in one line: every command of this package ends with it (core)."""


class AnalyticsError(Exception):
    """What went wrong and the way out, in one line."""
