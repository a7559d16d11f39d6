"""The operations that responses report as authorized: all, because the cluster has no security (core).

The constants are bit masks over the codes of Kafka's AclOperation. A response carries NOT_ASKED if the request did not ask
for the operations (KIP-430).
"""

TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
GROUP_OPERATIONS = sum(1 << operation for operation in (3, 6, 8, 10, 11))
NOT_ASKED = -0x80000000
