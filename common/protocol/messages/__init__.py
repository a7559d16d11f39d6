"""One module per API: `XxxRequest`, `XxxResponse` and their structs, with Kafka's names in snake case (core).

If a request and its response have different structs of the same name, the names get a prefix: `assign_replicas_to_dirs`,
`alter_partition`, `describe_quorum` and `fetch_snapshot` have a `RequestTopicData` and a `ResponseTopicData`, or similar
pairs. A struct that both share (`SnapshotId`) is one class. Every field has a default: Kafka's if there is one, None for a
nullable string or bytes, otherwise the zero of the type. A field that is not `ignorable` may be set only if it exists in the
version to be sent.
"""
