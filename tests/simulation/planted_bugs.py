"""The bugs that the simulator must find, one at a time.

Each is a plausible mistake in a place where the design avoids it. Its story says what the author might have thought. A bug
that another rule makes harmless does not belong here. If the simulator does not find a bug, then a fault, a piece of
workload or a checker is missing, or the bug is harmless.

DIRECTED_BUGS need more partitions or a slower disk than a seed has, or moments that hardly any seed hits. A test made for
the rule finds each of them (`test_directed_bugs`), and `make simulate-mutants` leaves them out.
"""

from broker.controller_link.assignments_sender import AssignmentsSender
from broker.coordinator.coordinator_partition import CoordinatorPartition
from broker.coordinator.core.consumer_group import heartbeat as consumer_heartbeat
from broker.coordinator.core.consumer_group import reconciliation, upgrade
from broker.coordinator.core.group_shard import GroupShard
from broker.coordinator.core.transactions.shard import TransactionShard
from broker.coordinator.core.transactions.transaction import Transaction
from broker.coordinator.group_coordinator import GroupCoordinator
from broker.coordinator.marker_sender import MarkerSender
from broker.coordinator.open_shard import OpenShard
from broker.core import alter_log_dir, compaction, directory_support, future_at_start, placement, reconcile
from broker.core.directory_assignments import DirectoryAssignments
from broker.core.directory_reports import DirectoryReports
from broker.core.hosted_replicas import HostedReplicas
from broker.core.lifecycle import BrokerLifecycle
from broker.core.partition_replica import PartitionReplica
from broker.core.replica_movement import ReplicaMovement
from broker.core.verification_guards import VerificationGuards
from broker.daemon import BrokerDaemon
from broker.hosting import cleaner
from broker.hosting.client_reads import ClientReads
from broker.hosting.directory_uses import DirectoryUses
from broker.hosting.fetchers import Fetchers
from broker.hosting.follower_truncation import FollowerTruncation
from broker.hosting.hosted import Hosted
from broker.hosting.metadata_application import MetadataApplication
from broker.hosting.moves import Moves
from broker.hosting.partition import Partition
from broker.hosting.reconciliation import Reconciliation
from broker.hosting.replica_copy import ReplicaCopy
from broker.hosting.replica_creation import ReplicaCreation
from broker.hosting.replica_fetcher import ReplicaFetcher
from broker.hosting.replicas import Replicas
from broker.hosting.upkeep import Upkeep
from broker.requests import coordinator_parts, delete_records, fetched_partitions, metadata, produce
from broker.requests.groups import GroupRequests
from broker.requests.write_txn_markers import WriteTxnMarkersRequests
from common.configuration import description
from common.environment import disk_errors
from common.log_dirs import probe
from common.log_dirs.directory_suspicion import DirectorySuspicion
from common.log_dirs.suspected_directories import SuspectedDirectories
from common.metadata.state import MetadataState
from common.net.request_memory import RequestMemory
from common.raft.commit_queue import CommitQueue
from common.raft.driver import QuorumDriver
from common.raft.follower import Follower
from common.raft.metadata_log import MetadataLog
from common.records import batch
from common.storage import clean_shutdown, new_log
from common.storage.compaction import swap
from common.storage.compaction.cleaned_transactions import CleanedTransactions
from common.storage.log import Log
from common.storage.producers.log_producers import LogProducers
from common.storage.segment import Segment
from controller import own_operations, quorum_controller
from controller.core import (
    alter_partition,
    assign_replicas_to_dirs,
    broker_epochs,
    broker_state,
    directory_failure,
    election,
    fencing,
    heartbeat,
    partition_change,
    reassignment,
    registration,
    transactions,
)
from controller.core import placement as controller_placement
from controller.core.broker_sessions import BrokerSessions
from tests.simulation.planting import Edit, PlantedBug


def _bug(name: str, story: str, *edits: Edit, seed: int | None = None) -> PlantedBug:
    return PlantedBug(name, story, edits, seed)


_DISKS = (
    _bug(
        "a process short of files gives up its disks",
        "Whatever the errno is: the operation failed, so the disk has.",
        Edit(
            disk_errors.classify,
            "in _PROCESS_LIMITS:\n        return Verdict.PROCESS_TROUBLE",
            "in _PROCESS_LIMITS:\n        return Verdict.DIRECTORY_FAILED",
        ),
    ),
    _bug(
        "recovery point without fsync",
        "The kernel has the bytes, and kernels do not crash.",
        Edit(Log._sync, "await self.log_dir.fsync(segment.file.handle)", "pass"),
    ),
    _bug(
        "a new log acknowledges before its name is durable",
        "There is nothing in the log yet that could be lost.",
        Edit(new_log.create_first_segments, "await make_durable(log_dir, [each.name for each in new])", "pass"),
    ),
    _bug(
        "a deleted segment keeps its name",
        "Its file goes in a minute anyway.",
        Edit(
            Segment.removal_steps,
            'yield self.log_dir.rename(self.path(), f"{self.folder}/{self.deleted_name}")',
            "pass",
        ),
    ),
    _bug(
        "no checksums at recovery",
        "The length is right, so the content will be.",
        Edit(batch.find_intact_batches, " or crc32c(view[position + _ATTRIBUTES_POSITION : batch_end]) != header.crc", ""),
    ),
    _bug(
        "the marker of an orderly end stays",
        "It is overwritten at the next orderly end.",
        Edit(clean_shutdown.remove_clean_shutdown, "await log_dir.remove(CLEAN_SHUTDOWN_FILE)", "pass"),
    ),
    _bug(
        "one worker for all disks",
        "Threads are expensive.",
        Edit(
            Replicas.load,
            "loading = ReplicaLoading(",
            "for hosted in self._hosted.online_directories():\n"
            "        hosted.work = self._hosted.online_directories()[0].work\n"
            "    loading = ReplicaLoading(",
        ),
    ),
    _bug(
        "no probe of idle disks",
        "Somebody will notice when somebody writes.",
        Edit(probe.probe_log_dir, "while is_online():", "while False:"),
        seed=13,
    ),
    _bug(
        "nobody suspects a silent disk",
        "It will go offline soon enough.",
        Edit(DirectorySuspicion.look, "if silent_ns < self._suspect_after_ns or", "if True or"),
    ),
    _bug(
        "a suspicion is for ever",
        "A disk that has hung once will hang again.",
        Edit(DirectorySuspicion._trust, "or steady_ns >= self._suspect_after_ns", ""),
    ),
    _bug(
        "what waits for a silent disk is not answered",
        "The records will be written as soon as the disk goes on.",
        Edit(produce.ProduceHandler._directory_suspected, "for produce in [*self._shared.writing]:", "for produce in ():"),
    ),
    _bug(
        "a fetch waits for a silent disk",
        "The client wants these records, so it will wait for them.",
        Edit(ClientReads._give_up, "if directory_id == suspected and not given_up.done():", "if False:"),
        Edit(SuspectedDirectories.look, "for directory_id in self._suspicion.silent:", "for directory_id in ():"),
    ),
    _bug(
        "a follower keeps its silent disk to itself",
        "The leader sees that no fetches come.",
        Edit(Fetchers._directory_suspected, "if directory == directory_id:", "if False:"),
    ),
    _bug(
        "what waits for a follower with a silent disk is not answered",
        "New requests are refused, and those that wait have a timeout.",
        Edit(Partition.follower_fetched, "if self.replica.is_held_up and not was_held_up:", "if False:"),
    ),
    _bug(
        "what waits for a coordinator's silent disk is not answered",
        "A coordinator has a timeout of its own.",
        Edit(
            CoordinatorPartition._is_held_up,
            "return self.partition.waits_for_any(self._suspected) or self.partition.replica.is_held_up",
            "return False",
        ),
    ),
    _bug(
        "transaction markers wait for a silent disk",
        "The coordinator must not forget the transaction before they are written.",
        Edit(WriteTxnMarkersRequests._directory_suspected, "for request in [*self._waiting]:", "for request in ():"),
    ),
    _bug(
        "a follower with a silent disk never goes on",
        "Its leader will remove it from the ISR, and that is the end of it.",
        Edit(Fetchers._directory_trusted, "if directory == directory_id:", "if False:"),
    ),
    _bug(
        "an empty log for a member of the ISR",
        "Not there? Then it has to be created.",
        Edit(
            reconcile._decide_absent_in_isr,
            "if never_held_data:",
            "if True:",
        ),
    ),
    _bug(
        "a replica of a failed disk gets a new log",
        "The disk is dead, so the replica goes to another one and fetches everything again.",
        Edit(reconcile.decide, "if log_directory is not None:", "if False:"),
        Edit(
            reconcile._decide_absent_in_isr,
            "if never_held_data:",
            "if True:",
        ),
    ),
)

_REPLICATION = (
    _bug(
        "acknowledging before the ISR has it",
        "It is written here, and the followers are quick.",
        Edit(produce._Produce.written, "if self._acks == ACKS_ALL or", "if"),
    ),
    _bug(
        "reading beyond the high watermark",
        "What is in the log can be read.",
        Edit(
            fetched_partitions.Fetch.read,
            "partition.readable_end(self._isolation)",
            "partition.log.written_offset",
        ),
    ),
    _bug(
        "a follower takes for committed what it has",
        "The leader sent it, so it will be there; consumers here need not wait for one more fetch.",
        Edit(
            PartitionReplica.leader_high_watermark,
            "bounded = min(high_watermark, self.log_end_offset)",
            "bounded = self.log_end_offset",
        ),
    ),
    _bug(
        "a follower confirms what it has only queued",
        "It is in the queue of the disk, that is as good as written.",
        Edit(
            ReplicaFetcher._is_ready,
            "        and partition.log.written_offset == partition.log.log_end_offset\n",
            "",
        ),
        Edit(ReplicaFetcher._wanted, "fetch_offset=log.written_offset", "fetch_offset=log.log_end_offset"),
        Edit(ReplicaFetcher._append, "    followed.is_appending = True\n    self._appends_left += 1\n", ""),
        Edit(ReplicaFetcher._append, "        self._appends_left -= 1\n", ""),
        Edit(ReplicaFetcher._append, "        if not self._appends_left:\n            self._go_on()\n", ""),
    ),
    _bug(
        "no truncation where logs part",
        "A follower's log is a prefix of the leader's.",
        Edit(
            fetched_partitions._diverging_epoch,
            "if known.epoch < wanted.last_fetched_epoch or known.end_offset < wanted.fetch_offset:",
            "if False:",
        ),
        seed=53,
    ),
    _bug(
        "what changed while a fetch waited is settled",
        "The fetch has looked at it, and the answer is on its way.",
        Edit(
            fetched_partitions.Fetch._put_off,
            "    changed.update(self._unconfirmed)\n",
            "",
        ),
    ),
    _bug(
        "what does not fit into an answer is settled",
        "The client was answered.",
        Edit(
            fetched_partitions.Fetch.response,
            "without_records.append(item)",
            "pass",
        ),
    ),
    _bug(
        "into the ISR before it has caught up",
        "It fetches, so it is in sync.",
        Edit(PartitionReplica._maybe_expand_isr, "follower.log_end_offset < reached or ", ""),
    ),
    _bug(
        "acks=all with too few in sync",
        "Whoever is in the ISR has it.",
        Edit(
            PartitionReplica.has_enough_in_sync,
            "return in_sync >= self.min_insync_replicas or in_sync >= self.min_isr",
            "return True",
        ),
    ),
    _bug(
        "committed with too few in sync",
        "The whole ISR has it; that the ISR is small is the producer's business.",
        Edit(PartitionReplica._maybe_advance_high_watermark, "if not self.has_enough_in_sync():", "if False:"),
    ),
    _bug(
        "a loaded log counts as committed",
        "It was on the disk before, so it must have been committed.",
        Edit(
            PartitionReplica.load_high_watermark,
            "min(max(checkpointed, self.log_start_offset), self.log_end_offset)",
            "self.log_end_offset",
        ),
    ),
)

_PRODUCERS = (
    _bug(
        "a follower does not look at sequence numbers",
        "Only the leader checks them.",
        Edit(Log.append_as_follower, "if header.producer_id > NO_PRODUCER_ID:", "if False:"),
    ),
    _bug(
        "a truncated log remembers its producers' batches",
        "The producer did send them.",
        Edit(Log._cut, "if end < self.producers.state.end_offset:", "if False:"),
        seed=2017,
    ),
    _bug(
        "a snapshot of producers for a longer log",
        "The append comes first, the snapshot can wait.",
        Edit(
            Log._roll,
            "self._start(self.producers.store_steps(self.name, base_offset))",
            "asyncio.get_running_loop().call_soon(\n"
            "        lambda: self._start(self.producers.store_steps(self.name, base_offset))\n"
            "    )",
        ),
        Edit(
            LogProducers.store_steps,
            'assert self.state.end_offset <= offset, "a snapshot must not know batches that it does not cover"\n',
            "pass\n",
        ),
        seed=28,
    ),
    _bug(
        "a duplicate is acknowledged before its original is replicated",
        "It was appended long ago.",
        Edit(Partition.append_as_leader, "Offset(earlier.last_offset + 1)", "Offset(0)"),
        seed=4,
    ),
)

_CONTROLLER = (
    _bug(
        "no broker epoch check",
        "A broker's id says who it is.",
        Edit(broker_epochs.registration_of, "if registration.epoch != broker_epoch:", "if False:"),
        Edit(
            PartitionReplica.is_stale_fetch,
            "return broker_epoch != NO_BROKER_EPOCH and registration is not None and registration.epoch > broker_epoch",
            "return False",
        ),
        Edit(
            PartitionReplica._is_eligible,
            "        and follower.broker_epoch in (NO_BROKER_EPOCH, registration.epoch)\n",
            "",
        ),
        Edit(
            alter_partition._validated,
            "registration is not None and epoch not in (NO_EPOCH, registration.epoch)",
            "False",
        ),
    ),
    _bug(
        "a LOST replica is revived in the epoch in which it led",
        "It is the same leader, and it may begin again at once.",
        Edit(assign_replicas_to_dirs.assignment_change, "not_revived=broker_id", "not_revived=None"),
        Edit(partition_change.partition_change, "or election.is_unclean\n", "or False\n"),
    ),
    _bug(
        "no end for a broker that cannot tell",
        "The controller will find out some day.",
        Edit(
            BrokerLifecycle._check_deadlines,
            "if now_ns < failure.deadline_ns:",
            "if True:",
        ),
        seed=747,
    ),
    _bug(
        "a heartbeat elects before it looks at lost directories",
        "First unfence, then the rest.",
        Edit(
            heartbeat.handle_broker_heartbeat,
            "Eligibility(state, subject=broker_id, after=after)",
            "Eligibility(state, subject=broker_id, after=replace(after, directories=registration.directories))",
        ),
    ),
    _bug(
        "a lost directory stays registered",
        "Leaders are moved, what else is there to write?",
        Edit(
            heartbeat._records,
            "registration_change(state.metadata_version, registration, after)",
            "registration_change(state.metadata_version, registration, "
            "replace(after, directories=registration.directories))",
        ),
    ),
    _bug(
        "only leaders leave a lost directory",
        "A follower does no harm.",
        Edit(
            directory_failure.handle_directory_failure,
            "if broker_id not in state.topics[key.topic_id].partitions[key.partition].isr:",
            "if broker_id != state.topics[key.topic_id].partitions[key.partition].leader:",
        ),
    ),
    _bug(
        "the ISR may become empty",
        "Nobody is in sync, so nobody is in the ISR.",
        Edit(
            partition_change.partition_change,
            "tuple(target.isr) if target.isr else",
            "tuple(target.isr) if target.isr is not None else",
        ),
    ),
    _bug(
        "a fenced broker stays in the ISR",
        "It will be back soon.",
        Edit(
            fencing.generate_fencing_records,
            "records = yield from generate_removal_records(state, changes, registration.broker_id)",
            "yield from ()\n    records: list[ApiMessageAndVersion] = []",
        ),
    ),
    _bug(
        "any replica may lead",
        "Better an old leader than none.",
        Edit(election.elect_leader, "if is_unclean_allowed:", "if True:"),
    ),
    _bug(
        "unfencing too early",
        "It registered and sends heartbeats: it is there.",
        Edit(
            broker_state._next_after_fenced,
            "if wish.wants_fence or not wish.is_caught_up or wish.may_not_be_unfenced or wish.has_lost_everything:",
            "if wish.may_not_be_unfenced or wish.has_lost_everything:",
        ),
    ),
    _bug(
        "no session ever ends",
        "A broker that wants to go says so.",
        Edit(fencing.fence_stale_broker, "if broker_id is None:", "if True:"),
    ),
    _bug(
        "a broker that shuts down keeps what it leads",
        "Its session will end.",
        Edit(
            heartbeat._records,
            "if after.in_controlled_shutdown or (after.fenced and not registration.fenced):",
            "if after.fenced and not registration.fenced:",
        ),
    ),
    _bug(
        "an ISR change from any epoch",
        "The leader asked for it.",
        Edit(
            alter_partition._validated,
            "if wish.leader_epoch < partition.leader_epoch:",
            "if False:",
        ),
        Edit(alter_partition._validated, "if leader != partition.leader:", "if False:"),
        Edit(alter_partition._validated, "if wish.partition_epoch < partition.partition_epoch:", "if False:"),
        seed=342,
    ),
    _bug(
        "an ISR change with anybody in it",
        "The leader knows who is in sync.",
        Edit(
            alter_partition._validated,
            "if not eligibility.is_eligible(broker_id, partition.directory(broker_id)) or (",
            "if (",
        ),
        Edit(
            PartitionReplica._is_eligible,
            "        and registration.has_online_directory(self.directories[self.replicas.index(broker_id)])\n",
            "",
        ),
    ),
    _bug(
        "a reassignment is completed before its target is in sync",
        "One of the new replicas has everything, the others will fetch it.",
        Edit(
            reassignment.completed,
            "not all(replica in isr_after for replica in awaited)",
            "not any(replica in isr_after for replica in target)",
        ),
    ),
    _bug(
        "answering before the commit",
        "It will be committed in a moment.",
        Edit(
            quorum_controller.QuorumController._park,
            "if parked.offset <= self._feed.committed_offset:",
            "if True:",
        ),
    ),
    _bug(
        "a feature level from the future is taken as it is",
        "A level is a number, and only controllers decide by it.",
        Edit(
            MetadataState.require_supported_levels,
            "if level not in supported:",
            "if False:",
        ),
    ),
    _bug(
        "metadata committed before it is synced",
        "Written is written.",
        Edit(
            QuorumDriver._append_group,
            "await self._log.log.flush(group[-1].batch.next_offset)\n",
            "pass\n",
        ),
    ),
    _bug(
        "a slow commit excuses silent brokers",
        "The controller was away for so long that it cannot have received heartbeats.",
        Edit(
            own_operations.OwnOperations._expire_sessions,
            'await self._by_itself("fence_stale_broker", fence_stale_broker)\n',
            "begun_ns = self._env.now_ns()\n"
            '            await self._by_itself("fence_stale_broker", fence_stale_broker)\n'
            "            self._controller._presence._last_look_ns = begun_ns\n"
            "            self._controller.look_at_clock()\n",
        ),
    ),
)

_BROKER = (
    _bug(
        "an assignment is sent once",
        "Whoever does not answer within a second is gone for good.",
        Edit(AssignmentsSender._send, "self.env.now_ns() + REQUEST_TIMEOUT_NS", "self.env.now_ns() + 1_000 * NS_PER_MS"),
        Edit(
            DirectoryAssignments.handle_failure,
            "if not wish.is_settled:\n            self._ready.setdefault(replica, wish)",
            "pass",
        ),
    ),
    _bug(
        "a replica is assigned once",
        "It said where it is when it was created.",
        Edit(
            reconcile.decide,
            "if is_settled else",
            "if is_settled or metadata_directory != UNASSIGNED else",
        ),
    ),
    _bug(
        "acknowledging a directory that was not in the request",
        "The heartbeat was answered, so the controller knows.",
        Edit(
            BrokerLifecycle._handle_heartbeat_answered,
            "self._acknowledge(event.offline_directories)",
            "self._acknowledge(tuple(self._failures))",
        ),
    ),
    _bug(
        "a late creation is taken back behind the next topic's",
        "A log that nobody wants goes like any other.",
        Edit(ReplicaCreation._host_created, "if self._known.placed_here(key) is None:", "if False:"),
        seed=2001,
    ),
    _bug(
        "a creation ends by itself in a directory that failed",
        "The creation knows best how it ended.",
        Edit(
            ReplicaCreation._ends_creation,
            "if not self._log_directories.is_online(directory.directory_id):",
            "if False:",
        ),
    ),
    _bug(
        "deleted topics stay",
        "Disk space is cheap.",
        Edit(
            MetadataApplication.apply,
            "for index in topic.partitions:",
            "for index in ():",
        ),
    ),
    _bug(
        "a removed leader keeps leading",
        "The topic is still there, so nothing is deleted.",
        Edit(
            Reconciliation.reconcile,
            "if decision.action is Action.DELETE:",
            "if decision.action is Action.DELETE and self._state.partition(*key) is None:",
        ),
    ),
    _bug(
        "leaders pile up on one disk",
        "A log is a log, whoever leads; the disk with the fewest takes the next.",
        Edit(placement.choose_directory, "load.replicas.count(kind), len(load.replicas)", "len(load.replicas)"),
    ),
    _bug(
        "a deleted replica is still counted",
        "Its files are there until the delay is over.",
        Edit(Reconciliation._delete, "directory.replicas.remove(partition.key)", "pass"),
    ),
    _bug(
        "a failed directory answers for ever",
        "The log is in a failed directory, so that is what every client gets to hear, as in Apache Kafka.",
        Edit(HostedReplicas.absent_error, "registration.leader not in (self._broker_id, NO_LEADER)", "False"),
    ),
)

_MOVES = (
    _bug(
        "the copy takes over before the controller knows",
        "The copy has everything, so why wait for an answer?",
        Edit(
            ReplicaMovement.may_swap,
            "return move.state is MoveState.ASSIGNING and assigned == move.target",
            "return move.state is MoveState.ASSIGNING",
        ),
    ),
    _bug(
        "an assignment of an earlier attempt acknowledges",
        "The metadata names the target already, so nothing is left to ask for.",
        Edit(
            ReplicaMovement.caught_up,
            "if move.state is MoveState.ASSIGNING or assigned == move.target:",
            "if move.state is MoveState.ASSIGNING:",
        ),
        seed=10,
    ),
    _bug(
        "the first of several reports acknowledges",
        "The metadata names the target, so the controller knows.",
        Edit(
            DirectoryReports.is_final,
            "return latest.directory_id == directory_id and (latest.is_only or latest.is_answered)",
            "return True",
        ),
        seed=10,
    ),
    _bug(
        "the copy gets its name before the old log loses it",
        "First make the new one ready, then take the old one away.",
        Edit(
            ReplicaCopy.exchange,
            "await self._rename(old, deleted)\n    try:\n        await self._rename(placed.log, folder)\n",
            "await self._rename(placed.log, folder)\n    try:\n        await self._rename(old, deleted)\n",
        ),
    ),
    _bug(
        "the old log goes before the copy's name is durable",
        "A rename is atomic.",
        Edit(
            ReplicaCopy.exchange,
            "await self._rename(placed.log, folder)",
            "await placed.log.log_dir.rename(placed.log.name, folder)\n        placed.log.name = folder",
        ),
    ),
    _bug(
        "a copy without the history of leader epochs",
        "The next start rebuilds it from the batches.",
        Edit(Log._adopt_epochs, "adopted = LeaderEpochs(epochs.entries)", "adopted = LeaderEpochs()"),
    ),
    _bug(
        "appends go on during the swap",
        "A swap takes a moment, and nobody wants to wait.",
        Edit(Partition.when_appendable, "if self.is_swapping:", "if False:"),
        Edit(
            ReplicaCopy.exchange,
            "placed is not None and placed.log.log_end_offset == old.log_end_offset",
            "placed is not None",
        ),
        Edit(
            ReplicaCopy.exchange,
            'assert placed.log.log_end_offset == old.log_end_offset, "an append during the swap would be lost"',
            "pass",
        ),
    ),
    _bug(
        "a swap forgets appends on their way to the disk",
        "What is not written yet is not acknowledged yet.",
        Edit(
            ReplicaCopy.complete,
            "while future.log_end_offset < current.log_end_offset:",
            "while future.log_end_offset < current.written_offset:",
        ),
        Edit(Log.take_over, 'assert self.log_end_offset == other.log_end_offset, "the copy is not complete"', "pass"),
        Edit(
            ReplicaCopy.exchange,
            "placed is not None and placed.log.log_end_offset == old.log_end_offset",
            "placed is not None",
        ),
        Edit(
            ReplicaCopy.exchange,
            'assert placed.log.log_end_offset == old.log_end_offset, "an append during the swap would be lost"',
            "pass",
        ),
    ),
    _bug(
        "the copy keeps what the log has truncated",
        "The copy was equal once, and appends go at the end.",
        Edit(ReplicaCopy.align, "if offset < self._future.log_end_offset:", "if False:"),
        seed=53,
    ),
    _bug(
        "a copy is promoted beside the current log",
        "The metadata names its directory, or no longer needs this replica in sync.",
        Edit(
            future_at_start.decide_futures,
            "if situation.current is not None:",
            "if situation.current is not None and situation.in_isr:",
        ),
        seed=4,
    ),
    _bug(
        "a move that failed keeps its assignment",
        "The replica's next move replaces the entry.",
        Edit(Moves._end, "self._known.movement.end(partition.key)", "pass"),
        seed=10,
    ),
    _bug(
        "the only copy is deleted as planned",
        "The name says -delete.",
        Edit(future_at_start.is_deletion_due, "return has_log or not is_placed_here", "return True"),
        seed=235,
    ),
)

_GROUPS = (
    _bug(
        "a heartbeat says that the group is being loaded",
        "So it is, and the member will come back later.",
        Edit(GroupRequests.handle_heartbeat, ", while_loading=ErrorCode.NONE", ""),
    ),
    _bug(
        "a commit is answered before it is replicated",
        "The leader has it, and the followers will.",
        Edit(
            OpenShard._written,
            "self._partition.wait_until_replicated(end_offset, partial(self._replicated, pending), is_patient=True)",
            "self._replicated(pending, ErrorCode.NONE)",
        ),
    ),
    _bug(
        "a load ends at the high watermark of the moment",
        "Nothing beyond it is committed.",
        Edit(
            CoordinatorPartition._committed_end,
            "end_offset = self.partition.log.log_end_offset",
            "end_offset = self.partition.high_watermark",
        ),
    ),
    _bug(
        "a shard keeps its groups after it lost the leadership",
        "It may lead again, and then it need not load. Until then its timers rest.",
        Edit(
            GroupCoordinator.role_changed,
            "if known.partition is partition and partition.is_leader and "
            "known.leader_epoch == partition.replica.leader_epoch:",
            "if known.partition is partition:",
        ),
        Edit(
            OpenShard._wake_up,
            "self.perform(lambda shard, now: shard.timer_fired(now, key))",
            "self.perform(lambda shard, now: shard.timer_fired(now, key) if self._partition.is_leader else [])",
        ),
    ),
    _bug(
        "a member of a consumer group gets partitions before they are revoked",
        "The target assignment gives it these partitions, so they are its own.",
        Edit(
            reconciliation._next,
            "free = frozenset(each for each in wanted if is_free(topic_id, each))",
            "free = wanted",
        ),
    ),
)

_UPGRADES = (
    _bug(
        "a classic group that becomes a consumer group forgets what its members own",
        "They are told to join again, and will say what they own.",
        Edit(upgrade._members, "assigned=assignment,", "assigned=NOTHING,"),
    ),
)

_TRANSACTIONS = (
    _bug(
        "an offset in a transaction is committed at once",
        "The producer will commit anyway.",
        Edit(
            GroupShard.commit_transactional_offsets,
            "self._pending.put(request.producer_id, key, value)",
            "self._offsets.put(key, value)",
        ),
    ),
    _bug(
        "a loaded transaction gets no markers",
        "They were sent before the shard was unloaded.",
        Edit(TransactionShard.loaded, "elif transaction.state.is_prepared:", "elif not transaction.partitions:"),
    ),
    _bug(
        "an abort is told to the partitions as a commit",
        "A marker is a marker: what was aborted has no records.",
        Edit(
            Transaction.markers_due,
            "is_commit=self.state is TransactionState.PREPARE_COMMIT",
            "is_commit=self.state.is_prepared",
        ),
    ),
    _bug(
        "a transaction begins without the coordinator",
        "The producer has added the partition before it sends the batch.",
        Edit(Partition._is_known_open, "return not self.is_swapping and", "return True or"),
        Edit(VerificationGuards.validate_append, "if state.has_open_transaction(", "if True or state.has_open_transaction("),
        seed=2,
    ),
    _bug(
        "the end of a transaction leaves the epoch as it is",
        "The producer is told its epoch with the answer, and no other producer has it.",
        Edit(TransactionShard.end_bumping, "version=EPOCH_BUMP_TRANSACTION_VERSION", "version=0"),
        seed=8,
    ),
)

_COMPACTION = (
    _bug(
        "compaction beyond the high watermark",
        "The segment is full and synced, so nothing will change it.",
        Edit(compaction.cleanable_part, "segment.next_offset > last_stable_offset or is_too_young", "is_too_young"),
        Edit(cleaner._is_still_cleanable, " and part.end_offset <= partition.last_stable_offset", ""),
    ),
    _bug(
        "the compacted segment gets its name last",
        "The old segments are renamed, not removed, so nothing is lost.",
        Edit(
            swap.swap_steps,
            "    yield log_dir.rename(cleaned.cleaned_path(folder), swap)\n    yield log_dir.fsync_dir(folder)\n",
            "",
        ),
        Edit(
            swap.swap_steps,
            "yield log_dir.rename(swap, cleaned.path())",
            "yield log_dir.rename(cleaned.cleaned_path(folder), cleaned.path())",
        ),
    ),
    _bug(
        "compaction goes on taking a producer's records for aborted",
        "Its transaction has ended, so nothing more of it will come.",
        Edit(
            CleanedTransactions.may_go,
            "self._aborted.pop(header.producer_id, None)",
            "self._aborted.get(header.producer_id)",
        ),
        seed=8,
    ),
)

_REQUEST_MEMORY = (
    _bug(
        "a directory may fill the memory for requests",
        "A limit is a limit: what counts is that the broker does not run out of memory.",
        Edit(RequestMemory._share_bytes, "max(", "max(self._limit_bytes, "),
    ),
    _bug(
        "a full directory takes every request",
        "Its connections stop reading, that is enough.",
        Edit(RequestMemory.has_room_for, "waiting_bytes is None\n", "True\n"),
    ),
)

_REPEATED_HEARTBEATS = (
    _bug(
        "a lost directory is looked at once",
        "There was nothing to repair in it, and it is lost for good.",
        Edit(BrokerSessions.is_settled, "session.settled.get(what) == election_changes", "what in session.settled"),
    ),
    _bug(
        "a replica that comes into a lost directory changes nothing",
        "Only a partition without a leader needs another look.",
        Edit(
            MetadataState._put_partition,
            "partition.leader == NO_LEADER or self._may_have_to_leave_isr(partition)",
            "partition.leader == NO_LEADER",
        ),
    ),
)

_SLICES = (
    _bug(
        "a heartbeat is answered from what may be lost",
        "The state has the registration, so the broker is registered.",
        Edit(
            quorum_controller.QuorumController._early_response,
            "if under_way.offset > self._feed.committed_offset:",
            "if False:",
        ),
    ),
    _bug(
        "a heartbeat between two slices comes in time",
        "The broker is alive, as its heartbeat shows.",
        Edit(
            heartbeat.answer_between_slices,
            "or not turn.sessions.is_valid(registration.broker_id, turn.now_ns)\n",
            "\n",
        ),
    ),
    _bug(
        "a heartbeat overtakes the operation that is about its broker",
        "The registration is there, before the operation as after it.",
        Edit(
            heartbeat.answer_between_slices,
            "or registration is not turn.state.brokers.get(registration.broker_id)\n",
            "\n",
        ),
    ),
    _bug(
        "a replica that left between two slices is configured",
        "It was served when the work began.",
        Edit(Hosted.each_served, "if self.served(partition.key) is partition:", "if True:"),
    ),
    _bug(
        "an answer to Metadata has what changes between two slices",
        "Newer is better.",
        Edit(metadata._found, "dict(topic.partitions)", "topic.partitions"),
    ),
    _bug(
        "a fetch trusts what it has looked up in an earlier slice",
        "That was a few milliseconds ago.",
        Edit(fetched_partitions.Fetch._pause, "    self._has_paused = True\n", ""),
    ),
    _bug(
        "a description reads what changes between two slices",
        "Copies of the configuration of thousands of topics cost memory.",
        Edit(description._Configs.__init__, "key: dict(set_configs[key]) for", "key: set_configs[key] for"),
    ),
    _bug(
        "a transaction's records are replayed as they come",
        "The rest of it is in the next batch.",
        Edit(
            transactions.plan_append, "Append([begin, *records, end], is_atomic=False)", "Append(records, is_atomic=False)"
        ),
    ),
    _bug(
        "a listener gets all that was fetched in one step",
        "It is only one fetch.",
        Edit(CommitQueue.advance, "if fetched_count > RECORDS_PER_STEP:", "if False:"),
    ),
)

_CHECKPOINTS = (
    _bug(
        "a truncated log takes records before its checkpoints are lowered",
        "They are stored again within a minute.",
        Edit(FollowerTruncation._restructure, "await self._upkeep.lower_checkpoints_before_appends(partition)", "pass"),
    ),
)

_RARE = (
    _bug(
        "an epoch that the leader does not know is no divergence",
        "The follower's log is not longer than the leader's.",
        Edit(
            fetched_partitions._diverging_epoch,
            "if known.epoch < wanted.last_fetched_epoch or known.end_offset < wanted.fetch_offset:",
            "if known.end_offset < wanted.fetch_offset:",
        ),
    ),
    _bug(
        "a marker that a leader refused is not sent again",
        "The next leader gets the marker by replication.",
        Edit(
            MarkerSender._answered,
            "self._retry_later(pending, partition)",
            "pending.left.discard(partition)\n        self._maybe_complete(pending)",
        ),
    ),
    _bug(
        "a list leaves out the groups on a lost disk",
        "They are no longer here, and their next coordinator lists them.",
        Edit(
            coordinator_parts.list_error,
            "ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.leads_another(listed) else ErrorCode.NONE",
            "ErrorCode.NONE",
        ),
    ),
    _bug(
        "retry after a failed fsync",
        "An fsync that failed once may well succeed the second time; no reason to give up a whole disk.",
        Edit(
            disk_errors.classify,
            "FSYNC_STEP:\n        return Verdict.DIRECTORY_FAILED",
            "FSYNC_STEP:\n        return Verdict.PROCESS_TROUBLE",
        ),
        Edit(
            Log._sync,
            "except LogDirError as error:\n            self._fail(error)\n            raise",
            "except LogDirError:\n            await self.log_dir.fsync(segment.file.handle)",
        ),
    ),
    _bug(
        "a truncated log keeps its snapshots of producers",
        "They were right when they were written.",
        Edit(Log._cut_steps, "yield from self.producers.drop_beyond_steps(self.name, self.log_end_offset)\n", "pass\n"),
    ),
    _bug(
        "assigned to a lost directory and still in the ISR",
        "An assignment says where a replica is, nothing else.",
        Edit(
            assign_replicas_to_dirs.assignment_change,
            "if not registration.has_online_directory(directory_id):",
            "if False:",
        ),
    ),
    _bug(
        "a new incarnation inherits the ISR",
        "It is the same broker.",
        Edit(
            registration._register_new_incarnation,
            "records = yield from generate_removal_records(state, changes, broker_id)",
            "yield from ()",
        ),
    ),
)

_CORDONS = (
    _bug(
        "a replica moves into a cordoned directory",
        "An operator asked for it.",
        Edit(alter_log_dir._refuse_destination, "if wanted.is_cordoned", "if False"),
    ),
    _bug(
        "a cordoned directory gets new replicas",
        "There is room on it.",
        Edit(placement.choose_directory, "[each for each in loads if not each.is_cordoned] or loads", "loads"),
    ),
    _bug(
        "a broker whose directories are all cordoned gets new replicas",
        "It will find a place.",
        Edit(controller_placement.placement_brokers, "        if not registration.is_cordoned\n", ""),
    ),
)

DIRECTED_BUGS: tuple[PlantedBug, ...] = (
    *_REQUEST_MEMORY,
    _bug(
        "a static member whose join was not answered is taken for another one",
        "Its place is taken.",
        Edit(consumer_heartbeat.identify, " and not rejoins", ""),
    ),
    _bug(
        "a leader whose appends have failed remembers that a follower has them",
        "What a follower has, it has.",
        Edit(
            PartitionReplica.truncated,
            "follower.log_end_offset = min(follower.log_end_offset, log_end_offset)",
            "pass",
        ),
    ),
    *_REPEATED_HEARTBEATS,
    *_SLICES,
    *_UPGRADES,
    *_CHECKPOINTS,
    *_RARE,
    _bug(
        "an observer waits for its disk",
        "What it has applied it should have.",
        Edit(Follower._append, "UNWRITTEN_BYTES_MAX", "0"),
    ),
    _bug(
        "a listener that is behind waits for the disk",
        "It reads the log, and that is on the disk.",
        Edit(MetadataLog.read_batches, "if written_offset <= offset < upper_offset:", "if False:"),
    ),
    _bug(
        "a suspected directory gets new replicas",
        "It is online.",
        Edit(placement.choose_directory, "[each for each in candidates if not each.is_unsteady] or", ""),
    ),
    _bug(
        "each disk has to be waited for before it is suspected",
        "What hangs is noticed by what waits for it.",
        Edit(SuspectedDirectories.look, "for directory_id in self._suspicion.to_try:", "for directory_id in ():"),
    ),
    _bug(
        "a disk is trusted as soon as it finishes anything",
        "It is well again.",
        Edit(
            DirectorySuspicion._trust,
            "steady_ns >= self._suspect_after_ns",
            "steady_ns > 0",
        ),
    ),
    _bug(
        "followers are judged as soon as their leader's disk is trusted",
        "They have had all that time.",
        Edit(Upkeep._shrink_isrs, "self._suspected.unsteady", "self._suspected"),
    ),
    _bug(
        "a directory is closed when all moves have ended",
        "It takes but a moment.",
        Edit(DirectoryUses.ended_in, "while directory_id in self._counts", "while self._counts"),
    ),
    _bug(
        "a broker keeps its cordons to itself",
        "It places no replica there anyway.",
        Edit(BrokerDaemon._cordoned, "return sorted(", "return None and sorted("),
    ),
    _bug(
        "a copy is served although its move was undone",
        "It has the partition's name.",
        Edit(future_at_start.may_be_outdated, "return named", "return False and named"),
    ),
    _bug(
        "what is held back by a swap waits for its target",
        "The partition is in its old directory until the swap has ended.",
        Edit(Partition.waits_for_any, "or self.is_swap_overdue", ""),
    ),
    _bug(
        "a move keeps its turn while its source hangs",
        "It is still under way.",
        Edit(Moves._is_held_up, "return ", "return False and "),
    ),
    _bug(
        "a follower that cuts its log keeps its silent disk to itself",
        "It has nothing to say of its log until it is cut.",
        Edit(
            ReplicaFetcher._notice_of,
            "if self._is_follower(followed)",
            "if self._is_current(followed)",
        ),
    ),
    _bug(
        "a follower keeps it to itself that its swap hangs",
        "Its disk is not suspected.",
        Edit(ReplicaFetcher._notice_of, " or partition.is_swap_overdue", ""),
    ),
    _bug(
        "a follower fetches before its notice is answered",
        "The fetch is sent after the notice.",
        Edit(ReplicaFetcher._is_ready, "and followed.leader_epoch not in partition.unanswered_notices", ""),
    ),
    _bug(
        "a follower with a silent disk keeps its consumers",
        "Its records come as soon as the disk goes on.",
        Edit(fetched_partitions.Fetch._role_error, "partition.directory_id in self._replicas.suspected", "False"),
    ),
    _bug(
        "a leader sends consumers to a follower with a silent disk",
        "It is in the ISR.",
        Edit(PartitionReplica.readable_followers, " and broker_id not in self.halted_followers", ""),
    ),
    _bug(
        "a follower without a log keeps its silent disk to itself",
        "It does not follow a leader yet.",
        Edit(ReplicaFetcher.halt, "[*self._followed, *self._expected]", "self._followed"),
    ),
    _bug(
        "a deletion waits for a follower with a silent disk",
        "The client has set the timeout itself.",
        Edit(delete_records._DeleteRecords._waits_for_a_hung_disk, "or partition.replica.is_held_up", ""),
    ),
    _bug(
        "a downgrade leaves its directories lost",
        "The registration does not list them any more.",
        Edit(MetadataState._replay_register_broker, " and self._knows_directories(record)", ""),
    ),
)

_LEVELS = (
    _bug(
        "no registration when the level rises",
        "The broker has registered already.",
        Edit(BrokerDaemon._lacking_registration, "not registration.directories", "False"),
        seed=111,
    ),
    _bug(
        "a broker goes on without one of its directories at any level",
        "The other directories are as good as ever.",
        Edit(directory_support.reason_to_end, "not offline or", "True or"),
        seed=68,
    ),
)

PLANTED_BUGS: tuple[PlantedBug, ...] = (
    *_DISKS,
    *_REPLICATION,
    *_PRODUCERS,
    *_CONTROLLER,
    *_BROKER,
    *_MOVES,
    *_GROUPS,
    *_TRANSACTIONS,
    *_COMPACTION,
    *_LEVELS,
    *_CORDONS,
)
