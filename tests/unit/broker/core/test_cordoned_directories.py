"""Cordoned directories: which ones they are, and that no new replica goes there."""

import pytest

from broker.core.cordoned_directories import is_cordoned
from broker.core.current_configuration import CurrentConfiguration
from broker.core.placement import DirectoryLoad, PlacedReplicas, ReplicaKind, choose_directory
from common.configuration.resolver import ConfigResolver
from common.configuration.server_loading import load_server_config
from common.configuration.settings import ConfigError
from common.ids import DirectoryId, Offset, Uuid
from common.metadata.state import MetadataState
from common.records.metadata_records import FeatureLevelRecord

A, B = (DirectoryId(Uuid(bytes([each]) * 16)) for each in (1, 2))


def properties(cordoned: str) -> dict[str, str]:
    return {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "9@controller:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://:9092",
        "log.dirs": "/a,/b",
        "cordoned.log.dirs": cordoned,
    }


@pytest.mark.parametrize(
    ("cordoned", "level", "expected"),
    [("", 30, []), ("/b", 30, ["/b"]), ("*", 30, ["/a", "/b"]), ("/b", 29, []), ("*", 29, [])],
)
def test_a_directory_is_cordoned_if_the_level_knows_cordons(cordoned: str, level: int, expected: list[str]) -> None:
    """Below 4.3-IV0 the key has no effect."""
    state = MetadataState()
    state.replay(FeatureLevelRecord(name="metadata.version", feature_level=level), offset=Offset(0))
    given = properties(cordoned)
    configuration = CurrentConfiguration(ConfigResolver(load_server_config(given), given), state)
    assert [path for path in ("/a", "/b") if is_cordoned(path, configuration, state)] == expected


@pytest.mark.parametrize("cordoned", ["/c", "/a,/c", "*,/a", "a"])
def test_what_is_no_directory_of_the_broker_cannot_be_cordoned(cordoned: str) -> None:
    """The error names the key."""
    with pytest.raises(ConfigError, match=r"^cordoned\.log\.dirs="):
        load_server_config(properties(cordoned))


def chosen(cordoned: tuple[DirectoryId, ...], usable_bytes: int = 100) -> DirectoryId | None:
    loads = [
        DirectoryLoad(
            directory_id=each,
            replicas=PlacedReplicas(),
            usable_bytes=100 if each == A else usable_bytes,
            free_inodes=0,
            is_cordoned=each in cordoned,
        )
        for each in (A, B)
    ]
    return choose_directory(loads, ReplicaKind.FOLLOWER, usable_bytes_min=10, free_inodes_min=0)


def test_new_replicas_go_elsewhere_even_if_there_is_no_room() -> None:
    """Only if all directories are cordoned does the cordon not count."""
    assert chosen(()) == A
    assert chosen((A,)) == B
    assert chosen((A,), usable_bytes=0) is None
    assert chosen((A, B)) == A
