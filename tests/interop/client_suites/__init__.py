"""Runs the integration test suites that clients publish, from their source, against a Diskraft cluster.

`make client-suites` runs them. `sources` finds a suite's files, `suites` says how each is run, `running` runs one, and
`expectations` compares its outcome with the file that is kept for it in `expected`. The plugins in `adapters` are loaded
into the suite's own pytest, where they put our brokers in place of those that the suite would start.
"""
