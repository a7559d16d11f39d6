"""Which topic names are legal."""

import pytest

from common.metadata.topic_names import InvalidTopicName, collision_key, is_internal_topic, validate_topic_name


@pytest.mark.parametrize("name", ["a", "A.b_c-0", "...", "_", "x" * 249])
def test_what_kafka_allows_is_a_legal_name(name: str) -> None:
    """Nothing is raised for what Kafka allows; the length limit is inclusive."""
    validate_topic_name(name)
    assert collision_key(name) == collision_key(name.replace(".", "_"))


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "a b", "ä", "a\n", "a\x00", "../x", "a\\b", "１"])
def test_a_name_that_could_leave_the_log_directory_is_refused(name: str) -> None:
    """What could leave the log directory, or is not plain ASCII, is refused."""
    with pytest.raises(InvalidTopicName):
        validate_topic_name(name)


def test_only_kafkas_own_state_topics_are_internal() -> None:
    """Only Kafka's own state topics are internal."""
    assert is_internal_topic("__consumer_offsets")
    assert not is_internal_topic("__mine")
