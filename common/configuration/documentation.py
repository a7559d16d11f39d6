"""One sentence or two about each key, as DescribeConfigs returns them if a client asks for documentation (core; KIP-569).

The pages in docs/ say more. A key that several settings share, such as min.insync.replicas, is documented for the topic and
for the server.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TOPIC_DOCUMENTATION: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cleanup.policy": "What happens to old segments: delete drops them, compact keeps the last record of each key.",
        "compression.gzip.level": "The level from 1 to 9 if compression.type is gzip. -1 is the codec's default.",
        "compression.lz4.level": "The level from 1 to 17 if compression.type is lz4.",
        "compression.type": "The compression of stored batches. producer stores a batch as it was sent.",
        "compression.zstd.level": "The level from -131072 to 22 if compression.type is zstd.",
        "delete.retention.ms": "How long tombstones stay in a compacted log, in milliseconds.",
        "file.delete.delay.ms": "How long the files of a deleted segment or log stay on disk, in milliseconds.",
        "flush.messages": (
            "How many records may be written and not yet synced to disk. With 1, none is acknowledged before it is synced."
        ),
        "flush.ms": (
            "How long after a periodic sync of a log the next one is due, in milliseconds. Brokers look every "
            "log.flush.scheduler.interval.ms."
        ),
        "follower.replication.throttled.replicas": (
            "The replicas whose fetching is throttled, as PARTITION:BROKER separated by commas, or * for all."
        ),
        "index.interval.bytes": "How many bytes of records lie between two entries of a segment's index.",
        "leader.replication.throttled.replicas": (
            "The replicas to which leaders send throttled, as PARTITION:BROKER separated by commas, or * for all."
        ),
        "local.retention.bytes": "The size of the part that stays local with a remote tier. -2 means retention.bytes.",
        "local.retention.ms": "How long segments stay local with a remote tier, in milliseconds. -2 means retention.ms.",
        "max.compaction.lag.ms": "The longest time for which a record stays uncompacted, in milliseconds.",
        "max.message.bytes": "The size of the largest batch that producers may send, after compression.",
        "message.timestamp.after.max.ms": "How far in the future a record's time may be, in milliseconds (CreateTime only).",
        "message.timestamp.before.max.ms": "How far in the past a record's time may be, in milliseconds (CreateTime only).",
        "message.timestamp.type": "Whether a record has the producer's time (CreateTime) or the broker's (LogAppendTime).",
        "min.cleanable.dirty.ratio": "The part of a log that is uncompacted when compaction begins.",
        "min.compaction.lag.ms": "The shortest time for which a record stays uncompacted, in milliseconds.",
        "min.insync.replicas": "How many replicas must be in sync before a write with acks=all is accepted.",
        "preallocate": "Whether the file of a new segment gets its full size at once.",
        "remote.log.copy.disable": "Whether new segments are no longer copied to the remote tier.",
        "remote.log.delete.on.disable": "Whether remote segments are deleted when the remote tier is disabled.",
        "remote.storage.enable": "Whether segments are also stored in a remote tier.",
        "retention.bytes": "The size that a partition's log may have before old segments are deleted. -1 sets no limit.",
        "retention.ms": "How long records are kept before their segments are deleted, in milliseconds. -1 sets no limit.",
        "segment.bytes": "The size at which a segment is closed and a new one begins.",
        "segment.index.bytes": "The largest size of a segment's index. A full index closes the segment.",
        "segment.jitter.ms": "The longest random time by which segments are closed earlier, in milliseconds.",
        "segment.ms": "The age at which a segment is closed even if it is not full, in milliseconds.",
        "unclean.leader.election.enable": (
            "Whether a replica that is not in sync may become leader if no other can. Acknowledged records may be lost."
        ),
    }
)

GROUP_DOCUMENTATION: Final[Mapping[str, str]] = MappingProxyType(
    {
        "consumer.assignment.interval.ms": (
            "The least time between two assignments of the consumer group, in milliseconds. Members that join or leave "
            "meanwhile are assigned together."
        ),
        "consumer.heartbeat.interval.ms": "How often a member of the consumer group sends heartbeats, in milliseconds.",
        "consumer.session.timeout.ms": (
            "After how long a silent member of the consumer group counts as gone, in milliseconds."
        ),
    }
)

SERVER_DOCUMENTATION: Final[Mapping[str, str]] = MappingProxyType(
    {
        "add.partitions.to.txn.retry.backoff.max.ms": (
            "How long a leader goes on asking to add its partition to a transaction, in milliseconds."
        ),
        "add.partitions.to.txn.retry.backoff.ms": (
            "The time before a leader asks again to add its partition to a transaction, in milliseconds."
        ),
        "advertised.listeners": "The addresses that clients and other brokers are told to connect to.",
        "auto.create.topics.enable": "Whether a topic is created when a client first asks for it.",
        "auto.leader.rebalance.enable": "Whether the controller gives leaderships back to preferred leaders by itself.",
        "broker.heartbeat.interval.ms": "The time between two heartbeats of a broker, in milliseconds.",
        "broker.id": "Another name of node.id.",
        "broker.rack": "The rack of the broker. New partitions are spread over racks.",
        "broker.session.timeout.ms": "A broker without a heartbeat for this long is fenced. In milliseconds.",
        "compression.gzip.level": "The level from 1 to 9 if compression.type is gzip. -1 is the codec's default.",
        "compression.lz4.level": "The level from 1 to 17 if compression.type is lz4.",
        "compression.type": "The compression of stored batches. producer stores a batch as it was sent.",
        "compression.zstd.level": "The level from -131072 to 22 if compression.type is zstd.",
        "connections.max.idle.ms": "Idle connections are closed after this time, in milliseconds. Negative: never.",
        "controlled.shutdown.enable": "Whether leaderships move away before the broker ends.",
        "controller.listener.names": "The names of the controllers' listeners. Brokers connect to the first of them.",
        "controller.quorum.bootstrap.servers": "Addresses of controllers, instead of controller.quorum.voters.",
        "controller.quorum.request.timeout.ms": "How long a request to a controller may take, in milliseconds.",
        "controller.quorum.retry.backoff.ms": "The time before a request to a controller is repeated, in milliseconds.",
        "controller.quorum.voters": "The controllers, as ID@HOST:PORT separated by commas.",
        "cordoned.log.dirs": "The directories of log.dirs that get no new replicas, or * for all of them (KIP-1066).",
        "default.replication.factor": "The replication factor of topics that are created without one.",
        "delete.topic.enable": "Whether topics can be deleted.",
        "diskraft.controlled.shutdown.timeout.ms": "How long a broker's end waits until its leaders have moved, in ms.",
        "diskraft.log.dir.free.bytes.floor": "New replicas are not placed in a directory with less free space.",
        "diskraft.log.dir.operation.timeout.ms": (
            "A disk operation that takes longer, in milliseconds, takes its directory offline if nothing finished meanwhile."
        ),
        "diskraft.log.dir.probe.interval.ms": "How often an idle directory is probed by writing to it, in milliseconds.",
        "diskraft.log.dir.sync.timeout.ms": (
            "A sync, a removal or another change of names that takes longer, in milliseconds, takes its directory offline."
        ),
        "diskraft.log.dir.suspect.ms": (
            "A directory that finishes nothing for this time, in milliseconds, is suspected: what waits for it is answered."
        ),
        "diskraft.prometheus.listener": "HOST:PORT on which metrics are served.",
        "fetch.max.bytes": "The largest size of a fetch response, unless one batch is larger.",
        "follower.replication.throttled.rate": (
            "The bytes per second that this broker fetches for its replicas in follower.replication.throttled.replicas."
        ),
        "group.consumer.assignment.interval.ms": (
            "The least time between two assignments of a consumer group, in milliseconds. Members that join or leave "
            "meanwhile are assigned together."
        ),
        "group.consumer.assignors": (
            "The assignors of consumer groups, the default first. A consumer may ask for one with group.remote.assignor."
        ),
        "group.consumer.heartbeat.interval.ms": "How often a member of a consumer group sends heartbeats, in milliseconds.",
        "group.consumer.max.assignment.interval.ms": "The largest value of group.consumer.assignment.interval.ms.",
        "group.consumer.max.heartbeat.interval.ms": "The largest value of group.consumer.heartbeat.interval.ms.",
        "group.consumer.max.session.timeout.ms": "The largest value of group.consumer.session.timeout.ms.",
        "group.consumer.max.size": "How many members a consumer group may have.",
        "group.consumer.migration.policy": (
            "Which groups with members may change their protocol: with upgrade, a classic group that a consumer of the "
            "consumer protocol joins; with downgrade, a consumer group that only classic members are left in; with "
            "bidirectional both; with disabled none."
        ),
        "group.consumer.min.assignment.interval.ms": "The smallest value of group.consumer.assignment.interval.ms.",
        "group.consumer.min.heartbeat.interval.ms": "The smallest value of group.consumer.heartbeat.interval.ms.",
        "group.consumer.min.session.timeout.ms": "The smallest value of group.consumer.session.timeout.ms.",
        "group.consumer.session.timeout.ms": (
            "After this time without a heartbeat a member is removed from its consumer group. In milliseconds."
        ),
        "group.coordinator.rebalance.protocols": (
            "The protocols that groups may use: classic and, unless it is left out, consumer (KIP-848)."
        ),
        "group.initial.rebalance.delay.ms": (
            "How long the coordinator waits for more members before the first rebalance of an empty group, in milliseconds."
        ),
        "group.max.session.timeout.ms": "The longest session timeout that a group member may have, in milliseconds.",
        "group.max.size": "How many members a group may have.",
        "group.min.session.timeout.ms": "The shortest session timeout that a group member may have, in milliseconds.",
        "initial.broker.registration.timeout.ms": "A broker that cannot register for this long ends. In milliseconds.",
        "inter.broker.listener.name": "The listener for connections between brokers.",
        "intra.broker.throttled.rate": "KIP-113's name of replica.alter.log.dirs.io.max.bytes.per.second.",
        "leader.imbalance.check.interval.seconds": "How often the controller looks for leaders that are not preferred.",
        "leader.replication.throttled.rate": (
            "The bytes per second that this broker sends for its replicas in leader.replication.throttled.replicas."
        ),
        "listener.security.protocol.map": "The security protocol of each listener, as NAME:PROTOCOL separated by commas.",
        "listeners": "The addresses to which the node binds, as NAME://HOST:PORT separated by commas.",
        "log.cleaner.backoff.ms": "How long the cleaner rests when there is nothing to compact, in milliseconds.",
        "log.cleaner.dedupe.buffer.size": "The memory for the offsets of keys, summed over all cleaner threads.",
        "log.cleaner.delete.retention.ms": "How long tombstones stay in compacted logs, in milliseconds.",
        "log.cleaner.enable": "Whether logs with the policy compact are compacted.",
        "log.cleaner.io.buffer.load.factor": "How full the cleaner's table of keys may be.",
        "log.cleaner.io.buffer.size": "The memory for reading and writing, summed over all cleaner threads.",
        "log.cleaner.io.max.bytes.per.second": "The bytes per second that the cleaner reads and writes.",
        "log.cleaner.max.compaction.lag.ms": "The longest time for which a record stays uncompacted, in milliseconds.",
        "log.cleaner.min.cleanable.ratio": "The part of a log that is uncompacted when compaction begins.",
        "log.cleaner.min.compaction.lag.ms": "The shortest time for which a record stays uncompacted, in milliseconds.",
        "log.cleaner.threads": "How many logs are compacted at the same time.",
        "log.cleanup.policy": "What happens to old segments of topics that do not say so themselves: delete or compact.",
        "log.dir": "One directory for logs. log.dirs takes precedence.",
        "log.dir.failure.timeout.ms": (
            "A broker that leads in a failed directory ends if the controller has not learned of it for this long. "
            "In milliseconds."
        ),
        "log.dirs": "The directories for logs, separated by commas.",
        "log.flush.interval.messages": (
            "How many records of a log may be written and not yet synced to disk, where the topic does not say so itself. "
            "With 1, none is acknowledged before it is synced."
        ),
        "log.flush.interval.ms": (
            "How long after a periodic sync of a log the next one is due, in milliseconds, where the topic does not say so "
            "itself."
        ),
        "log.flush.scheduler.interval.ms": "How often logs are looked at that may have to be synced, in milliseconds.",
        "log.flush.offset.checkpoint.interval.ms": "How often recovery points are written, in milliseconds.",
        "log.flush.start.offset.checkpoint.interval.ms": "How often log start offsets are written, in milliseconds.",
        "log.index.interval.bytes": "How many bytes of records lie between two entries of a segment's index.",
        "log.index.size.max.bytes": "The largest size of a segment's index. A full index closes the segment.",
        "log.message.timestamp.after.max.ms": "How far in the future a record's time may be, in milliseconds.",
        "log.message.timestamp.before.max.ms": "How far in the past a record's time may be, in milliseconds.",
        "log.message.timestamp.type": "The time of records: the producer's (CreateTime) or the broker's (LogAppendTime).",
        "log.retention.bytes": "The size that a partition's log may have before old segments are deleted. -1 sets no limit.",
        "log.retention.check.interval.ms": "How often the broker looks for segments to delete, in milliseconds.",
        "log.retention.hours": "How long records are kept, in hours. Counts if neither minutes nor milliseconds are set.",
        "log.retention.minutes": "How long records are kept, in minutes. Counts if no milliseconds are set.",
        "log.retention.ms": "How long records are kept, in milliseconds. -1 sets no limit.",
        "log.roll.hours": "The age at which a segment is closed even if it is not full, in hours.",
        "log.roll.jitter.hours": "By how much some segments are closed earlier, at most, in hours.",
        "log.roll.jitter.ms": "By how much some segments are closed earlier, at most, in milliseconds.",
        "log.roll.ms": "The age at which a segment is closed even if it is not full, in milliseconds.",
        "log.segment.bytes": "The size at which a segment is closed and a new one begins.",
        "log.segment.delete.delay.ms": "How long the files of a deleted segment or log stay on disk, in milliseconds.",
        "max.connections": "How many connections a listener accepts.",
        "max.connections.per.ip": "How many connections a listener accepts from one address.",
        "max.incremental.fetch.session.cache.slots": "How many fetch sessions a broker keeps.",
        "max.connections.per.ip.overrides": "Addresses with a limit of their own, as ADDRESS:NUMBER separated by commas.",
        "max.request.partition.size.limit": "How many partitions one response to DescribeTopicPartitions may have.",
        "message.max.bytes": "The size of the largest batch that producers may send, after compression.",
        "metadata.log.dir": "The directory of the metadata log. By default the first of log.dirs.",
        "metadata.log.max.record.bytes.between.snapshots": "How many bytes of metadata records cause a new snapshot.",
        "metadata.log.max.snapshot.interval.ms": "The longest time between two metadata snapshots, in milliseconds.",
        "metadata.log.segment.bytes": "The size at which a segment of the metadata log is closed.",
        "metadata.log.segment.ms": "The age at which a segment of the metadata log is closed, in milliseconds.",
        "metadata.max.idle.interval.ms": (
            "How often the controller writes a record to an idle metadata log, in milliseconds. 0 never."
        ),
        "metadata.max.retention.bytes": "The size of metadata log and snapshots above which old ones are deleted.",
        "metadata.max.retention.ms": "How long old metadata segments and snapshots are kept, in milliseconds.",
        "min.insync.replicas": "How many replicas must be in sync before a write with acks=all is accepted.",
        "node.id": "The number of this node, which no other node of the cluster has.",
        "num.partitions": "How many partitions a topic gets that is created without a number.",
        "num.replica.alter.log.dirs.threads": "How many replicas move between directories at the same time.",
        "offset.metadata.max.bytes": "The longest text that a group may commit with an offset.",
        "offsets.commit.timeout.ms": "How long an offset commit waits until its record is replicated, in milliseconds.",
        "offsets.load.buffer.size": "How many bytes are read at a time while the offsets of groups are loaded.",
        "offsets.retention.check.interval.ms": "How often expired offsets are looked for, in milliseconds.",
        "offsets.retention.minutes": "How long the offsets of a group without members are kept, in minutes.",
        "offsets.topic.compression.codec": "The compression of the topic of committed offsets.",
        "offsets.topic.num.partitions": "How many partitions the topic of committed offsets has.",
        "offsets.topic.replication.factor": "The replication factor of the topic of committed offsets.",
        "offsets.topic.segment.bytes": "The size at which a segment of the topic of committed offsets is closed.",
        "process.roles": "What this node is: broker, controller or both.",
        "producer.id.expiration.check.interval.ms": "How often expired producer ids are looked for, in milliseconds.",
        "producer.id.expiration.ms": "How long a partition remembers an idle producer, in milliseconds.",
        "queued.max.request.bytes": "The memory for requests above which a listener stops reading. -1 sets no limit.",
        "replica.alter.log.dirs.io.max.bytes.per.second": "The bytes per second of all moves between directories.",
        "replica.fetch.backoff.ms": "The time before a follower fetches again after an error, in milliseconds.",
        "replica.fetch.max.bytes": "How many bytes a follower fetches per partition, or one batch if it is larger.",
        "replica.fetch.min.bytes": "How many bytes a follower waits for.",
        "replica.fetch.response.max.bytes": "How many bytes a follower fetches at a time, over all partitions.",
        "replica.fetch.wait.max.ms": "How long a follower's fetch may wait for bytes, in milliseconds.",
        "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks are written, in milliseconds.",
        "replica.lag.time.max.ms": "A follower that has not caught up for this long leaves the ISR. In milliseconds.",
        "replica.selector.class": (
            "How the leader chooses the replica from which a consumer reads: the RackAwareReplicaSelector of Apache Kafka "
            "sends a consumer to an in-sync replica in its client.rack. Without a value, consumers read from the leader."
        ),
        "replica.socket.timeout.ms": "How long a follower waits for an answer of the leader, in milliseconds.",
        "socket.connection.setup.timeout.ms": "How long connecting to another node may take, in milliseconds.",
        "socket.request.max.bytes": "The size of the largest request.",
        "transaction.max.timeout.ms": "The longest timeout that a transactional producer may ask for, in milliseconds.",
        "transaction.partition.verification.enable": (
            "Whether a leader asks the transaction coordinator before a transaction begins in its partition."
        ),
        "transaction.remove.expired.transaction.cleanup.interval.ms": (
            "How often transactional ids that have expired are looked for, in milliseconds."
        ),
        "transaction.state.log.min.isr": "The min.insync.replicas of the topic of transactional ids.",
        "transaction.state.log.num.partitions": "How many partitions the topic of transactional ids has.",
        "transaction.state.log.replication.factor": "The replication factor of the topic of transactional ids.",
        "transaction.state.log.segment.bytes": "The size at which a segment of the topic of transactional ids is closed.",
        "transactional.id.expiration.ms": "How long a transactional id is kept without being used, in milliseconds.",
        "unclean.leader.election.enable": (
            "Whether a replica that is not in sync may become leader if no other can. Acknowledged records may be lost."
        ),
        "zookeeper.metadata.migration.enable": (
            "Whether brokers in ZooKeeper mode may register at this controller. Nothing is read from ZooKeeper."
        ),
    }
)
