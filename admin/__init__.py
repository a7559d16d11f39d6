"""The admin client: an asyncio library for administering a cluster. The command line tools use it, and any program can.

async with AdminClient("127.0.0.1:9092") as admin:
    moved = admin.alter_replica_log_dirs({TopicPartitionReplica("t", 0, 1): "/disk-2"})
    await moved.all()
"""
