"""The error that every command of this package reports to the user, in one line (core)."""


class AnalyticsError(Exception):
    """What went wrong and how to fix it, in one line."""
