"""The decision table for one replica of this broker. The last tests go through all situations."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from broker.core.reconcile import Action, Decision, ReplicaSituation, decide
from common.ids import DirectoryId, Uuid
from common.metadata.directory_ids import LOST, MIGRATING, UNASSIGNED

A = DirectoryId(Uuid(b"A" * 16))
B = DirectoryId(Uuid(b"B" * 16))
GONE = DirectoryId(Uuid(b"X" * 16))

BASE = ReplicaSituation(
    metadata_directory=A,
    log_directory=None,
    online_directories=(A, B),
    any_offline=False,
    in_isr=False,
    leads_while_recovering=False,
    newer_than_incarnation=False,
    previous_directories_online=False,
)


def hosted(directory: DirectoryId, metadata: DirectoryId | None) -> ReplicaSituation:
    return replace(BASE, log_directory=directory, metadata_directory=metadata)


def absent(metadata: DirectoryId, **changes: Any) -> ReplicaSituation:
    return replace(BASE, metadata_directory=metadata, **changes)


def failed(directory: DirectoryId, metadata: DirectoryId, **changes: Any) -> ReplicaSituation:
    return replace(absent(metadata, any_offline=True, **changes), log_directory=directory)


TABLE = [
    # The log exists: it is used where it is, and its directory is reported if the metadata names another.
    (hosted(A, A), Decision(Action.USE)),
    (hosted(B, A), Decision(Action.ASSIGN, B)),
    (hosted(B, UNASSIGNED), Decision(Action.ASSIGN, B)),
    (hosted(B, MIGRATING), Decision(Action.ASSIGN, B)),
    (hosted(B, LOST), Decision(Action.ASSIGN, B)),
    (hosted(B, GONE), Decision(Action.ASSIGN, B)),
    (hosted(A, None), Decision(Action.DELETE)),
    # The replica is moving and its copy has caught up. The broker reports the target until the metadata names it.
    (replace(hosted(A, A), moving_to=B), Decision(Action.ASSIGN, B)),
    (replace(hosted(A, UNASSIGNED), moving_to=B), Decision(Action.ASSIGN, B)),
    (replace(hosted(A, B), moving_to=B), Decision(Action.USE)),
    (replace(hosted(A, None), moving_to=B), Decision(Action.DELETE)),
    # The metadata agrees, but it may be about to change, because the broker has reported another directory.
    (replace(hosted(A, A), is_final=False), Decision(Action.ASSIGN, A)),
    (replace(hosted(A, B), moving_to=B, is_final=False), Decision(Action.ASSIGN, B)),
    (replace(hosted(A, None), is_final=False), Decision(Action.DELETE)),
    (replace(failed(GONE, GONE), is_final=False), Decision(Action.SKIP)),
    # The log's directory failed in this incarnation: its id is reported if the controller does not know that the log was
    # there.
    (failed(GONE, GONE), Decision(Action.SKIP)),
    (failed(GONE, LOST), Decision(Action.SKIP)),
    (failed(GONE, UNASSIGNED), Decision(Action.ASSIGN, GONE)),
    (failed(GONE, A), Decision(Action.ASSIGN, GONE)),
    (failed(GONE, UNASSIGNED, in_isr=True, newer_than_incarnation=True), Decision(Action.ASSIGN, GONE)),
    (failed(GONE, UNASSIGNED, in_isr=True, leads_while_recovering=True), Decision(Action.ASSIGN, GONE)),
    # The log is absent and the replica is in the ISR: it is reported LOST, unless it certainly never had data.
    (absent(A, in_isr=True), Decision(Action.ASSIGN_LOST)),
    (absent(GONE, in_isr=True), Decision(Action.ASSIGN_LOST)),
    (absent(UNASSIGNED, in_isr=True), Decision(Action.ASSIGN_LOST)),
    (absent(MIGRATING, in_isr=True), Decision(Action.ASSIGN_LOST)),
    (absent(LOST, in_isr=True), Decision(Action.SKIP)),
    (absent(A, in_isr=True, any_offline=True), Decision(Action.ASSIGN_LOST)),
    # The log may be in an offline directory: nothing is reported if the controller already considers the replica offline.
    (absent(GONE, in_isr=True, any_offline=True), Decision(Action.SKIP)),
    (absent(UNASSIGNED, in_isr=True, any_offline=True), Decision(Action.ASSIGN_LOST)),
    (absent(MIGRATING, in_isr=True, any_offline=True), Decision(Action.ASSIGN_LOST)),
    (absent(A, in_isr=True, previous_directories_online=True), Decision(Action.ASSIGN_LOST)),
    (absent(UNASSIGNED, in_isr=True, previous_directories_online=True), Decision(Action.CREATE)),
    (absent(A, in_isr=True, previous_directories_online=True, has_left_no_trace=True), Decision(Action.CREATE, A)),
    (absent(UNASSIGNED, in_isr=True, newer_than_incarnation=True), Decision(Action.CREATE)),
    (absent(B, in_isr=True, newer_than_incarnation=True), Decision(Action.CREATE, B)),
    (absent(B, in_isr=True, newer_than_incarnation=True, any_offline=True), Decision(Action.CREATE, B)),
    (absent(GONE, in_isr=True, newer_than_incarnation=True), Decision(Action.CREATE)),
    (absent(UNASSIGNED, in_isr=True, leads_while_recovering=True), Decision(Action.CREATE)),
    (absent(UNASSIGNED, in_isr=True, leads_while_recovering=True, any_offline=True), Decision(Action.CREATE)),
    # The log is absent and the replica is outside the ISR: the log is created, unless it may be in an offline directory.
    (absent(A), Decision(Action.CREATE, A)),
    (absent(UNASSIGNED), Decision(Action.CREATE)),
    (absent(LOST), Decision(Action.CREATE)),
    (absent(MIGRATING), Decision(Action.CREATE)),
    (absent(GONE), Decision(Action.CREATE)),
    (absent(A, any_offline=True), Decision(Action.ASSIGN_LOST)),
    (absent(A, any_offline=True, newer_than_incarnation=True), Decision(Action.CREATE, A)),
    (absent(UNASSIGNED, any_offline=True), Decision(Action.CREATE)),
    (absent(LOST, any_offline=True), Decision(Action.SKIP)),
    (absent(MIGRATING, any_offline=True), Decision(Action.ASSIGN_LOST)),
    (absent(GONE, any_offline=True), Decision(Action.SKIP)),
    # The metadata does not place the replica here. It has no log here, or one in an offline directory, where nothing can be
    # deleted.
    (replace(BASE, metadata_directory=None), Decision(Action.SKIP)),
    (replace(BASE, metadata_directory=None, log_directory=GONE, any_offline=True), Decision(Action.SKIP)),
]


@pytest.mark.parametrize(("situation", "decision"), TABLE)
def test_each_situation_of_a_replica_has_its_decision(situation: ReplicaSituation, decision: Decision) -> None:
    """The rules are in docs/KIPS.md, "The broker: where replicas are", and for absent replicas also in docs/DESIGN.md."""
    assert decide(situation) == decision


def every_situation() -> list[ReplicaSituation]:
    flags = list(itertools.product((False, True), repeat=6))
    return [
        ReplicaSituation(
            metadata_directory=metadata,
            log_directory=log,
            online_directories=(A, B),
            any_offline=any_offline,
            in_isr=in_isr,
            leads_while_recovering=recovering,
            newer_than_incarnation=newer,
            previous_directories_online=previous,
            has_left_no_trace=traceless and metadata == A and not any_offline,
        )
        for metadata in (A, GONE, UNASSIGNED, LOST, MIGRATING)
        for log in (None, A, B, GONE)
        for any_offline, in_isr, recovering, newer, previous, traceless in flags
    ]


def test_an_isr_member_never_starts_empty_where_it_may_have_held_data() -> None:
    """In every situation, an ISR member's log is created empty only with one of four proofs that it held no data. No log is
    created if one exists or is in a failed directory."""
    for situation in every_situation():
        decision = decide(situation)
        if decision.action is not Action.CREATE:
            continue
        assert situation.log_directory is None
        assert decision.directory in (None, A, B)
        if situation.in_isr:
            assert (
                situation.newer_than_incarnation
                or situation.leads_while_recovering
                or (situation.metadata_directory == UNASSIGNED and situation.previous_directories_online)
                or situation.has_left_no_trace
            )


def test_deciding_again_after_the_decision_was_carried_out_changes_nothing() -> None:
    """The decision depends only on the situation: once the log exists and the metadata agrees, it stays USE or SKIP."""
    for situation in every_situation():
        decision = decide(situation)
        if decision.action is Action.ASSIGN_LOST:
            settled = replace(situation, metadata_directory=LOST, in_isr=True, newer_than_incarnation=False)
            settled = replace(settled, leads_while_recovering=False)
            assert decide(settled) == Decision(Action.SKIP)
        elif decision.action is Action.ASSIGN:
            assert decision.directory is not None
            assert decide(replace(situation, metadata_directory=decision.directory)).action in (Action.USE, Action.SKIP)
        elif decision.action is Action.CREATE:
            created = decision.directory or B
            settled = replace(situation, log_directory=created, metadata_directory=created)
            assert decide(settled) == Decision(Action.USE)
