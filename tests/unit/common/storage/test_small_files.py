"""The small files of a log directory: checkpoints, clean shutdown marker, partition.metadata, meta.properties."""

import pytest

from common.ids import BrokerEpoch, DirectoryId, TopicId, Uuid
from common.slices import ELEMENTS_PER_SLICE
from common.storage.checkpoints import load_offset_checkpoint, store_offset_checkpoint
from common.storage.clean_shutdown import (
    CleanShutdown,
    load_clean_shutdown,
    parse_clean_shutdown,
    remove_clean_shutdown,
    store_clean_shutdown,
)
from common.storage.log import Log
from common.storage.meta_properties import MetaProperties
from common.storage.meta_properties_file import load_meta_properties, store_meta_properties
from common.storage.move_origin import load_move_origin, remove_move_origin, store_move_origin
from common.storage.names import RECOVERY_POINT_CHECKPOINT_FILE
from common.storage.partition_metadata import (
    MalformedPartitionMetadata,
    load_partition_metadata,
    parse_partition_metadata,
)
from common.storage.text_checkpoint import MalformedCheckpoint
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.storage.batches import PATH, SMALL, TOPIC_ID, attached, watched_pauses


def test_an_offset_checkpoint_is_stored_and_a_missing_one_is_empty() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        assert await load_offset_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT_FILE) == {}
        await store_offset_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT_FILE, {("t", 0): 7})
        assert world.disk(PATH).files()["recovery-point-offset-checkpoint"] == b"0\n1\nt 0 7\n"
        assert await load_offset_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT_FILE) == {("t", 0): 7}

    SimulatedWorld(1).run(scenario)


def test_a_large_checkpoint_is_parsed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop runs in between when the entries of thousands of partitions are parsed."""
    pauses = watched_pauses(monkeypatch)

    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        offsets = {("t", index): index for index in range(4 * ELEMENTS_PER_SLICE)}
        await store_offset_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT_FILE, offsets)
        assert await load_offset_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT_FILE) == offsets
        assert len(pauses) == 4

    SimulatedWorld(1).run(scenario)


def test_a_malformed_checkpoint_names_its_file() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        world.disk(PATH).write(RECOVERY_POINT_CHECKPOINT_FILE, b"0\n5\n")
        with pytest.raises(MalformedCheckpoint, match="/d/recovery-point-offset-checkpoint: 5 entries are announced"):
            await load_offset_checkpoint(log_dir, RECOVERY_POINT_CHECKPOINT_FILE)

    SimulatedWorld(1).run(scenario)


def test_the_clean_shutdown_marker_comes_and_goes() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        assert await load_clean_shutdown(log_dir) is None
        await store_clean_shutdown(log_dir, BrokerEpoch(42))
        assert world.disk(PATH).files()[".kafka_cleanshutdown"] == b'{"version":0,"brokerEpoch":42}'
        assert await load_clean_shutdown(log_dir) == CleanShutdown(BrokerEpoch(42))
        await remove_clean_shutdown(log_dir)
        assert await load_clean_shutdown(log_dir) is None

    SimulatedWorld(1).run(scenario)


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff", b"[]", b'{"version":1,"brokerEpoch":1}', b'{"version":0}', b'{"version":0,"brokerEpoch":true}'],
)
def test_an_unreadable_marker_still_says_clean(content: bytes) -> None:
    # Apache Kafka before KIP-966 wrote an empty file.
    assert parse_clean_shutdown(content) == CleanShutdown(None)


def test_partition_metadata_is_stored_as_kafka_does() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        assert await load_partition_metadata(log_dir, "t-0") is None
        await Log.create(log_dir, "t-0", SMALL, TOPIC_ID)
        assert world.disk(PATH).files()["t-0/partition.metadata"] == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
        assert await load_partition_metadata(log_dir, "t-0") == TOPIC_ID
        world.disk(PATH).write("t-0/partition.metadata", b"")
        with pytest.raises(MalformedPartitionMetadata, match=r"/d/t-0/partition\.metadata: version '' is unknown"):
            await load_partition_metadata(log_dir, "t-0")

    SimulatedWorld(1).run(scenario)


def test_partition_metadata_of_kafka_with_a_trailing_newline_is_read() -> None:
    assert parse_partition_metadata(b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n") == TopicId(Uuid(bytes(15) + b"\1"))


@pytest.mark.parametrize(
    "content",
    [b"version: 1\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ", b"version: 0", b"version: 0\ntopic_id: x", b"\0" * 40,
     b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"],
)  # fmt: skip
def test_malformed_partition_metadata_is_refused(content: bytes) -> None:
    with pytest.raises(MalformedPartitionMetadata):
        parse_partition_metadata(content)


def test_the_origin_of_a_move_is_stored_and_a_damaged_file_names_none() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        await log_dir.mkdir("t-0")
        assert await load_move_origin(log_dir, "t-0") is None
        await remove_move_origin(log_dir, "t-0")
        origin = DirectoryId(TOPIC_ID)
        await store_move_origin(log_dir, "t-0", origin)
        assert await load_move_origin(log_dir, "t-0") == origin
        world.disk(PATH).write("t-0/moved-from", b"\xff")
        assert await load_move_origin(log_dir, "t-0") is None
        await remove_move_origin(log_dir, "t-0")
        assert not world.disk(PATH).files()

    SimulatedWorld(1).run(scenario)


def test_meta_properties_are_stored_and_a_missing_file_is_no_error() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        log_dir = await attached(world)
        assert await load_meta_properties(log_dir) is None
        await store_meta_properties(log_dir, MetaProperties(cluster_id="c", node_id=1))
        assert await load_meta_properties(log_dir) == MetaProperties(cluster_id="c", node_id=1)

    SimulatedWorld(1).run(scenario)
