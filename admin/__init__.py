"""The admin client: an asyncio library for administering a cluster, under the tools and for programs of one's own.

async with AdminClient("127.0.0.1:9092") as admin:
    moved = admin.alter_replica_log_dirs({TopicPartitionReplica("t", 0, 1): "/disk-2"})
    await moved.all()
"""
