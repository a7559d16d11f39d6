"""The tests of single rules notice when the rule is broken.

Each of DIRECTED_BUGS fails a test that passes without it. The functions of FOUND_BY call these tests, whose own modules run
them without the bug.
"""

from collections.abc import Callable

import pytest

from common.metadata.snapshot import UnwritableMetadata
from tests.simulation import (
    test_checkers_groups,
    test_cordons,
    test_flapping_disk,
    test_hung_creations,
    test_hung_deletions,
    test_hung_followers,
    test_hung_metadata,
    test_hung_moves,
    test_hung_shutdowns,
    test_hung_together,
    test_move_double_faults,
    test_moves_beside_hung_disk,
    test_rules,
)
from tests.simulation.planted_bugs import DIRECTED_BUGS
from tests.unit.broker import test_follower_reads, test_process_trouble, test_slow_disks
from tests.unit.broker.coordinator import test_group_coordinator, test_marker_sender
from tests.unit.broker.coordinator.core.consumer_group import test_static_consumers
from tests.unit.broker.core import test_partition_replica
from tests.unit.broker.hosting import test_replicas
from tests.unit.broker.requests import test_describe_configs, test_fetch, test_metadata
from tests.unit.common.raft import test_observers
from tests.unit.common.storage import test_log_failures
from tests.unit.common.storage.producers import test_log_producers
from tests.unit.controller import test_quorum_controller
from tests.unit.controller.core import test_assign_replicas_to_dirs, test_heartbeat, test_registration, test_update_features

BUGS = {bug.name: bug for bug in DIRECTED_BUGS}


def observers(monkeypatch: pytest.MonkeyPatch) -> None:
    test_observers.test_what_was_fetched_at_once_is_delivered_in_several_steps(monkeypatch)


def lost_appends(_: pytest.MonkeyPatch) -> None:
    test_partition_replica.test_what_followers_had_of_a_leaders_lost_appends_does_not_count()


def slow_disk(_: pytest.MonkeyPatch) -> None:
    test_slow_disks.test_a_slow_disk_does_not_hold_up_the_producers_of_the_others()


def repeated_report(_: pytest.MonkeyPatch) -> None:
    test_heartbeat.test_a_repeated_report_repairs_what_is_still_there()


def early_heartbeats(_: pytest.MonkeyPatch) -> None:
    test_heartbeat.test_a_broker_whose_registration_is_about_to_change_waits()


def uncommitted_heartbeats(_: pytest.MonkeyPatch) -> None:
    test_quorum_controller.test_a_heartbeat_is_not_answered_from_what_may_be_lost()


def former_self(_: pytest.MonkeyPatch) -> None:
    test_replicas.test_a_replica_that_leaves_and_comes_back_is_not_changed_by_its_former_self()


def description(_: pytest.MonkeyPatch) -> None:
    test_describe_configs.test_many_resources_are_described_in_slices_as_they_were()


def fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    test_fetch.test_a_leader_that_is_deposed_between_two_slices_answers_with_an_error(0, monkeypatch)


def metadata(_: pytest.MonkeyPatch) -> None:
    test_metadata.test_many_partitions_are_described_in_slices_as_they_were(is_named=False)


def transaction(_: pytest.MonkeyPatch) -> None:
    test_quorum_controller.test_more_than_one_batch_becomes_a_transaction()


def static_member(_: pytest.MonkeyPatch) -> None:
    test_static_consumers.test_a_static_member_whose_join_was_not_answered_joins_again()


def changing_group(_: pytest.MonkeyPatch) -> None:
    test_checkers_groups.test_groups_work_on_a_healthy_cluster(15)


def unlowered_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    test_process_trouble.test_no_record_is_appended_after_a_cut_before_the_checkpoints_are_lowered(
        "replace_file", monkeypatch
    )


def failed_fsync(_: pytest.MonkeyPatch) -> None:
    test_log_failures.test_a_failed_fsync_leaves_the_recovery_point_and_breaks_the_log()


def truncated_producers(_: pytest.MonkeyPatch) -> None:
    test_log_producers.test_truncation_goes_back_to_the_state_of_the_remaining_batches(4)


def lost_assignment(_: pytest.MonkeyPatch) -> None:
    test_assign_replicas_to_dirs.test_an_assignment_to_an_offline_directory_elects()


def new_incarnation(_: pytest.MonkeyPatch) -> None:
    test_registration.test_a_new_incarnation_while_the_old_one_is_not_fenced_takes_everything_from_it()


def downgrade(_: pytest.MonkeyPatch) -> None:
    test_update_features.test_a_snapshot_after_every_downgrade(17, 16)


def cordons(_: pytest.MonkeyPatch) -> None:
    test_cordons.test_a_cordoned_directory_keeps_its_replicas_and_gets_no_new_ones()


def undone_move(_: pytest.MonkeyPatch) -> None:
    test_move_double_faults.test_no_acknowledged_record_is_lost_when_disks_fail_in_a_swap(
        "target renamed", failing="target", missing="source"
    )


def hung_move(_: pytest.MonkeyPatch) -> None:
    test_hung_moves.test_a_producer_does_not_wait_for_the_hung_target_of_a_move()


def hung_source(_: pytest.MonkeyPatch) -> None:
    test_moves_beside_hung_disk.test_a_move_between_healthy_disks_gets_a_turn("source")


def hung_deletion(_: pytest.MonkeyPatch) -> None:
    test_hung_deletions.test_a_deletion_does_not_wait_for_a_follower_whose_disk_hangs()


def hung_reader(_: pytest.MonkeyPatch) -> None:
    test_follower_reads.test_the_disk_of_the_preferred_follower_hangs()


def hung_cut(_: pytest.MonkeyPatch) -> None:
    test_hung_followers.test_a_producer_does_not_wait_for_a_follower_whose_disk_hangs_before_its_log_is_cut(is_cut=True)


def hung_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    test_hung_followers.test_a_producer_does_not_wait_for_a_follower_with_the_hung_target_of_a_move(False, monkeypatch)


def late_notice(monkeypatch: pytest.MonkeyPatch) -> None:
    test_hung_followers.test_a_producer_does_not_wait_for_a_follower_with_the_hung_target_of_a_move(True, monkeypatch)


def refused_marker(_: pytest.MonkeyPatch) -> None:
    test_marker_sender.test_what_may_pass_is_repeated_until_it_has()


def lost_groups(_: pytest.MonkeyPatch) -> None:
    test_group_coordinator.test_a_failed_disk_unloads_its_groups()


def unknown_epoch(_: pytest.MonkeyPatch) -> None:
    test_rules.test_after_two_unclean_elections_the_replicas_are_equal()


def hung_creation(_: pytest.MonkeyPatch) -> None:
    test_hung_creations.test_a_new_topic_is_not_placed_on_a_disk_that_is_suspected_of_hanging()


def flapping_disk(_: pytest.MonkeyPatch) -> None:
    test_flapping_disk.test_healthy_partitions_go_on_beside_a_disk_that_hangs_again_and_again()


def flapping_leader(_: pytest.MonkeyPatch) -> None:
    test_flapping_disk.test_a_leader_whose_disk_hangs_again_and_again_keeps_its_followers()


def hung_new_follower(_: pytest.MonkeyPatch) -> None:
    test_hung_creations.test_a_producer_does_not_wait_for_a_follower_whose_log_is_being_created_on_a_hung_disk()


def hung_shutdown(_: pytest.MonkeyPatch) -> None:
    test_hung_shutdowns.test_a_move_that_waits_for_a_hung_disk_does_not_hold_up_the_other_directories(1)


def hung_metadata(_: pytest.MonkeyPatch) -> None:
    test_hung_metadata.test_a_broker_whose_metadata_disk_hangs_takes_leaderships_over(None)


def hung_metadata_listener(_: pytest.MonkeyPatch) -> None:
    test_hung_metadata.test_a_broker_whose_metadata_disk_hangs_takes_leaderships_over(1)


def disks_that_hang_together(_: pytest.MonkeyPatch) -> None:
    test_hung_together.test_a_fetch_waits_once_for_all_disks(2)


FOUND_BY: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a classic group that becomes a consumer group forgets what its members own": changing_group,
    "a static member whose join was not answered is taken for another one": static_member,
    "a leader whose appends have failed remembers that a follower has them": lost_appends,
    "a directory may fill the memory for requests": slow_disk,
    "a full directory takes every request": slow_disk,
    "a lost directory is looked at once": repeated_report,
    "a replica that comes into a lost directory changes nothing": repeated_report,
    "a heartbeat is answered from what may be lost": uncommitted_heartbeats,
    "a heartbeat between two slices comes in time": early_heartbeats,
    "a heartbeat overtakes the operation that is about its broker": early_heartbeats,
    "a replica that left between two slices is configured": former_self,
    "a description reads what changes between two slices": description,
    "a fetch trusts what it has looked up in an earlier slice": fetch,
    "an answer to Metadata has what changes between two slices": metadata,
    "a truncated log takes records before its checkpoints are lowered": unlowered_checkpoints,
    "a transaction's records are replayed as they come": transaction,
    "a listener gets all that was fetched in one step": observers,
    "retry after a failed fsync": failed_fsync,
    "a marker that a leader refused is not sent again": refused_marker,
    "a list leaves out the groups on a lost disk": lost_groups,
    "what is held back by a swap waits for its target": hung_move,
    "an observer waits for its disk": hung_metadata,
    "a listener that is behind waits for the disk": hung_metadata_listener,
    "a suspected directory gets new replicas": hung_creation,
    "each disk has to be waited for before it is suspected": disks_that_hang_together,
    "a disk is trusted as soon as it finishes anything": flapping_disk,
    "followers are judged as soon as their leader's disk is trusted": flapping_leader,
    "a directory is closed when all moves have ended": hung_shutdown,
    "a move keeps its turn while its source hangs": hung_source,
    "a deletion waits for a follower with a silent disk": hung_deletion,
    "a follower with a silent disk keeps its consumers": hung_reader,
    "a leader sends consumers to a follower with a silent disk": hung_reader,
    "a follower that cuts its log keeps its silent disk to itself": hung_cut,
    "a follower keeps it to itself that its swap hangs": hung_swap,
    "a follower fetches before its notice is answered": late_notice,
    "a follower without a log keeps its silent disk to itself": hung_new_follower,
    "an epoch that the leader does not know is no divergence": unknown_epoch,
    "a truncated log keeps its snapshots of producers": truncated_producers,
    "assigned to a lost directory and still in the ISR": lost_assignment,
    "a new incarnation inherits the ISR": new_incarnation,
    "a broker keeps its cordons to itself": cordons,
    "a copy is served although its move was undone": undone_move,
    "a downgrade leaves its directories lost": downgrade,
}


def test_every_directed_bug_has_its_test() -> None:
    assert FOUND_BY.keys() == BUGS.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND_BY)
def test_a_directed_test_finds_the_bug(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bug, the test passes in its own module."""
    found = (AssertionError, ExceptionGroup, UnwritableMetadata, pytest.fail.Exception)
    with BUGS[name].planted(), pytest.raises(found):
        FOUND_BY[name](monkeypatch)
