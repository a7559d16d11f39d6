"""One module per API: `XxxRequest`, `XxxResponse` and the structs inside them, under Kafka's names in snake case (core).

Where a request and its response both have a struct of one name but with other fields, the names are prefixed: in
`assign_replicas_to_dirs`, `alter_partition`, `describe_quorum` and `fetch_snapshot`, `RequestTopicData` stands beside
`ResponseTopicData`. Fields that both have in common (`SnapshotId`) are one class. Every field has a default: Kafka's where
one is stated, None for a nullable string or bytes, else the zero of the type. The easy thing to get wrong: a field that
is not `ignorable` may be set only if the version that will be sent has it.
"""
