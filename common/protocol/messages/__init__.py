"""One module per API: `XxxRequest`, `XxxResponse` and the structs inside them, under Kafka's names in snake case (core).

Where a request and its response both have a struct of one name but with other fields, the names are prefixed: in
`assign_replicas_to_dirs`, `alter_partition`, `describe_quorum` and `fetch_snapshot`, `RequestTopicData` stands beside
`ResponseTopicData`. Fields that both have in common (`SnapshotId`) are one class.
"""
