"""Topic configuration that brokers of Apache Kafka could not apply, where such brokers may join and where they cannot."""

import pytest

from common.metadata.metadata_version import DIRECTORY_NUMBERING_FEATURE
from common.protocol.errors import ErrorCode
from common.records.metadata_records import ConfigRecord, ConfigResourceType, FeatureLevelRecord
from tests.unit.controller.core.context import ControllerContext

TOO_SMALL, SMALLEST = "1048575", "1048576"
MESSAGE = "segment.bytes=1048575 is not valid; brokers of Apache Kafka may join this cluster, and take at least 1048576"
SET = 0


def cluster(*, is_mixed: bool) -> ControllerContext:
    """Returns a controller with broker 1 and topic t."""
    controller = ControllerContext()
    controller.start(1, ["a"])
    controller.topic("t", [[1]])
    if is_mixed:
        level = FeatureLevelRecord(name=DIRECTORY_NUMBERING_FEATURE, feature_level=0)
        controller.state.replay(level, offset=controller.next_write_offset)
    return controller


@pytest.mark.parametrize("is_mixed", [True, False])
def test_small_segments_are_refused_where_apache_brokers_may_join(is_mixed: bool) -> None:
    """A broker of Apache Kafka 4 would create no log of the topic, and not start any more."""
    controller = cluster(is_mixed=is_mixed)
    created = controller.create("new", [[1]], configs={"segment.bytes": TOO_SMALL}).topics[0]
    altered = controller.alter_configs(("segment.bytes", SET, TOO_SMALL))
    refused = (ErrorCode.INVALID_CONFIG, MESSAGE)
    fine = (ErrorCode.NONE, None)
    assert (created.error_code, created.error_message) == altered == (refused if is_mixed else fine)
    assert controller.create("other", [[1]], configs={"segment.bytes": SMALLEST}).topics[0].error_code == ErrorCode.NONE
    assert controller.alter_configs(("segment.bytes", SET, SMALLEST)) == fine


def test_a_small_segment_that_the_topic_has_may_stay() -> None:
    """A controller of an older Apache Kafka has set it. Other keys can be changed."""
    controller = cluster(is_mixed=True)
    record = ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", name="segment.bytes", value=TOO_SMALL)
    controller.state.replay(record, offset=controller.next_write_offset)
    assert controller.alter_configs(("retention.ms", SET, "5")) == (ErrorCode.NONE, None)
    assert controller.alter_configs(("segment.bytes", SET, "14"))[0] == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("policy", ["compact,", ",", "compact,,delete"])
def test_an_empty_policy_in_a_list_is_refused(policy: str) -> None:
    controller = cluster(is_mixed=False)
    message = f"cleanup.policy={policy} is not valid; no policy may be empty"
    assert controller.alter_configs(("cleanup.policy", SET, policy)) == (ErrorCode.INVALID_CONFIG, message)
