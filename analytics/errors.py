"""The error that every command of this package reports to the user, in one line (core)."""


class AnalyticsError(Exception):
    """An error that the user can fix. The message says in one line what went wrong and how to fix it."""
