"""Tests the checker of configuration (I22): it finds a broker whose values differ from those in the metadata."""

from dataclasses import replace

from common.records.metadata_records import ConfigRecord
from tests.simulation.test_checkers_replicas import Planted, run_planted


def test_values_that_the_metadata_does_not_give() -> None:
    """The broker missed a change for all brokers, for itself or for the topic. Or its log or its replica missed the
    change."""

    async def plant(planted: Planted) -> None:
        image, partition = planted.checkers.image.image, planted.follower
        own = str(planted.follower_id)
        for resource_type, name, key in (
            (4, "", "log.retention.ms"),
            (4, own, "log.segment.bytes"),
            (2, "t", "max.message.bytes"),
        ):
            image.replay(ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value="7"), 0)
            assert planted.invariants_open() == {"I5", "I22"}
            image.replay(ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=None), 0)
            assert planted.invariants_open() == set()
        partition.log.config = replace(partition.config, segment_bytes=7)
        assert planted.invariants_open() == {"I22"}
        partition.log.config = partition.config
        partition.replica.min_insync_replicas = 7
        assert "I22" in planted.invariants_open()

    run_planted(plant)
