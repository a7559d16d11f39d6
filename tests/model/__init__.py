"""Every interleaving of a very small cluster, searched over the production core functions.

The simulator draws some schedules of a whole cluster; this search goes through all of them, as a TLA+ model checker would,
but without a model of the protocol: the decisions are made by the production code. `cluster.py` says what can happen,
`properties.py` what must hold, `search.py` goes through the states.
"""
