"""Subscriptions by a regular expression: which topics they match, found a few at a time (core).

Counterpart of the resolution in Kafka's GroupMetadataManager, which leaves it to a thread. Here a timer that fires at once
goes through the next names, so a heartbeat never pays for all topics of the cluster. Until the first
resolution is done, a member that subscribes only by an expression owns nothing.

1. A new expression is resolved at once, all others of the group with it.
2. Created and deleted topics have the expressions resolved again with the next heartbeat, but no sooner than
   REFRESH_INTERVAL_MS after the last time.
3. If an expression matches other topics than before, the group epoch rises, also where the group reads the same topics as
   before: they are to be shared with the members that subscribe by this expression.
"""

from typing import Final

from broker.coordinator.core.consumer_group.consumer_group import ConsumerGroup
from broker.coordinator.core.consumer_group.group_log import resolved_record, write_resolved
from broker.coordinator.core.consumer_group.refusal import Refused
from broker.coordinator.core.consumer_group.target_assignment import raise_epoch
from broker.coordinator.core.consumer_group.topic_matching import TopicMatching
from broker.coordinator.core.consumer_group.topics_view import TopicsView
from broker.coordinator.core.regex import InvalidRegex, Regex
from broker.coordinator.core.turn import Turn
from common.protocol.errors import ErrorCode
from common.time_units import NS_PER_MS

# The first part of the key of the timer. The group id follows.
RESOLUTION: Final = "regex-resolution"
# How many names, and how many steps of automatons, a turn of the event loop may cost.
TOPICS_AT_ONCE: Final = 500
WORK_AT_ONCE: Final = 50_000
# As in Kafka.
REFRESH_INTERVAL_MS: Final = 10_000


def validate_regex(text: str) -> None:
    """Raises Refused if this is no regular expression."""
    try:
        Regex(text)
    except InvalidRegex as error:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {error}.",
        ) from error


def refuse_too_wide(group: ConsumerGroup, text: str | None, version: int) -> None:
    """Raises Refused if the regular expression matches too many topics. When the set of topics has changed, that is not
    known before the next resolution, which a heartbeat begins."""
    if text in group.too_wide_regexes and group.resolved_version == version:
        raise Refused(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{text}` matches more topics than a record of the group can name.",
        )


def maybe_resolve(turn: Turn, group: ConsumerGroup, version: int) -> None:
    """Has the expressions of the group resolved, if one is new or the set of topics has changed."""
    if not group.regexes:
        return
    is_new = bool(group.regexes - group.resolved.keys())
    was_long_ago = group.resolved_ns is None or turn.now.ns >= group.resolved_ns + REFRESH_INTERVAL_MS * NS_PER_MS
    if is_new or (group.resolved_version != version and was_long_ago):
        turn.set_timer((RESOLUTION, group.group_id), 0)


def resolution_timer_fired(turn: Turn, group: ConsumerGroup, topics: TopicsView, version: int) -> None:
    """Goes on with the resolution of the group, or begins it."""
    matching = group.matching
    if matching is None or matching.found.keys() != group.regexes:
        # The names are copied, because topics may come and go before the last one is looked at. Those are left to the next
        # resolution: where topics come and go all the time, one that began again with each of them would never end.
        matching = TopicMatching(sorted(group.regexes), list(topics.topic_ids))
        group.matching, group.matching_version = matching, version
    if matching.advance(names_max=TOPICS_AT_ONCE, work_max=WORK_AT_ONCE):
        turn.set_timer((RESOLUTION, group.group_id), 0)
    else:
        _finish(turn, group, topics, matching)


def _finish(turn: Turn, group: ConsumerGroup, topics: TopicsView, matching: TopicMatching) -> None:
    group.matching = None
    group.resolved_version, group.resolved_ns = group.matching_version, turn.now.ns
    has_changed = False
    group.too_wide_regexes.clear()
    for text in sorted(matching.found):
        found = frozenset(matching.found[text])
        if not turn.fits_one_batch([resolved_record(turn, group, text, found, group.matching_version)]):
            # The record cannot be written, and a failed append would throw the other groups of the partition away as well.
            found = frozenset()
            group.too_wide_regexes.add(text)
        if text not in group.resolved or group.resolved[text] != found:
            has_changed = has_changed or found != group.resolved.get(text, frozenset())
            write_resolved(turn, group, text, found, group.matching_version)
    if has_changed:
        raise_epoch(turn, group, topics)
