"""The rules for legal topic names."""

import pytest

from common.metadata.topic_names import InvalidTopicName, collision_key, is_internal_topic, validate_topic_name


@pytest.mark.parametrize("name", ["a", "A.b_c-0", "...", "_", "x" * 249])
def test_what_kafka_allows_is_a_legal_name(name: str) -> None:
    """Names that Kafka allows do not raise, up to 249 characters. Dots and underscores give the same collision key."""
    validate_topic_name(name)
    assert collision_key(name) == collision_key(name.replace(".", "_"))


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a b", "ä", "a\n", "a\x00", "../x", "a\\b", "１"])
def test_a_name_that_could_leave_the_log_directory_is_refused(name: str) -> None:
    """Names that could escape the log directory, or that have characters outside Kafka's set, are refused."""
    with pytest.raises(InvalidTopicName):
        validate_topic_name(name)


def test_only_kafkas_own_state_topics_are_internal() -> None:
    """Only the topics for Kafka's own state are internal."""
    assert is_internal_topic("__consumer_offsets")
    assert not is_internal_topic("__mine")
