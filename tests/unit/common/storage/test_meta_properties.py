"""meta.properties: the file format, and the check that all directories of a node agree. An error is one line."""

import pytest

from common.ids import DirectoryId, Uuid, uuid_text
from common.storage.meta_properties import (
    MalformedMetaProperties,
    MetaProperties,
    MetaPropertiesConflict,
    MetaPropertiesEnsemble,
    format_meta_properties,
    generate_directory_id,
    parse_meta_properties,
    verify_agreement,
    verify_for_start,
)

CLUSTER = "5L6g3nShT-eMCtK--X86sw"


def directory(number: int) -> DirectoryId:
    return DirectoryId(Uuid(bytes([200]) + bytes(14) + bytes([number])))


def formatted(number: int, *, cluster_id: str = CLUSTER, node_id: int = 1) -> MetaProperties:
    return MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory(number))


def ensemble(
    found: dict[str, MetaProperties], *, unformatted: tuple[str, ...] = (), unreadable: dict[str, str] | None = None
) -> MetaPropertiesEnsemble:
    return MetaPropertiesEnsemble(
        formatted=found, unformatted=unformatted, unreadable=unreadable or {}, metadata_log_dir="/d1"
    )


def test_the_file_is_a_java_properties_file() -> None:
    content = format_meta_properties(formatted(1))
    assert content == (b"cluster.id=5L6g3nShT-eMCtK--X86sw\ndirectory.id=yAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\nversion=1\n")
    assert parse_meta_properties(content) == formatted(1)
    assert str(formatted(1)) == f"{{cluster.id={CLUSTER}, directory.id=yAAAAAAAAAAAAAAAAAAAAQ, node.id=1, version=1}}"


def test_a_file_written_by_apache_kafka_is_read() -> None:
    content = (
        b"#\n#Tue Nov 03 10:00:00 UTC 2026\nnode.id=7\ndirectory.id : yAAAAAAAAAAAAAAAAAAAAQ\nversion=1\nx=y\ncluster.id=c\n"
    )
    assert parse_meta_properties(content) == MetaProperties(cluster_id="c", node_id=7, directory_id=directory(1))


def test_version_0_has_a_broker_id_and_may_lack_everything() -> None:
    old = parse_meta_properties(b"broker.id=3\ncluster.id=c\n")
    assert old == MetaProperties(cluster_id="c", node_id=3, version=0)
    assert b"broker.id=3" in format_meta_properties(old.with_directory_id(directory(2)))
    assert parse_meta_properties(b"") == MetaProperties(version=0)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"version=2\n", "Unknown meta.properties version number 2."),
        (b"version=x\n", "version is 'x'"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
        (b"version=1\ncluster.id=c\n", "node.id is missing"),
        (b"version=1\ncluster.id=c\nnode.id=-1\n", "node.id is '-1'"),
        (b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=abc\n", "directory.id: "),
        (b"cluster.id=\\uzzzz\n", "no properties file"),
    ],
)
def test_a_malformed_file_says_what_is_wrong(content: bytes, complaint: str) -> None:
    with pytest.raises(MalformedMetaProperties, match=complaint):
        parse_meta_properties(content)


def test_directories_that_agree_pass() -> None:
    both = ensemble({"/d1": formatted(1), "/d2": formatted(2)}, unreadable={"/d3": "EIO"})
    verify_agreement(both, node_id=1, cluster_id=CLUSTER)
    verify_for_start(both, node_id=1)
    assert both.cluster_id == CLUSTER


@pytest.mark.parametrize(
    ("second", "complaint"),
    [
        (
            formatted(2, cluster_id="other"),
            f"Invalid cluster.id in: /d2/meta.properties. Expected {CLUSTER}, but read other",
        ),
        (formatted(2, node_id=9), "Stored node id 9 doesn't match the configured node.id 1 in /d2/meta.properties"),
        (formatted(1), "Duplicate directory ID yAAAAAAAAAAAAAAAAAAAAQ found. It was the ID of /d1, but also of /d2"),
        (
            formatted(2).with_directory_id(DirectoryId(Uuid(bytes(15) + b"\x63"))),
            "Invalid reserved directory ID AAAAAAAAAAAAAAAAAAAAYw found in /d2",
        ),
    ],
)
def test_a_conflict_is_one_line_that_names_the_directory(second: MetaProperties, complaint: str) -> None:
    with pytest.raises(MetaPropertiesConflict) as conflict:
        verify_agreement(ensemble({"/d1": formatted(1), "/d2": second}), node_id=1)
    assert str(conflict.value).startswith(complaint)
    assert "\n" not in str(conflict.value)


def test_the_expected_cluster_counts_even_for_one_directory() -> None:
    with pytest.raises(MetaPropertiesConflict, match="Expected mine, but read"):
        verify_agreement(ensemble({"/d1": formatted(1)}), node_id=1, cluster_id="mine")


@pytest.mark.parametrize(
    ("broken", "complaint"),
    [
        (
            ensemble({"/d2": formatted(2)}, unreadable={"/d1": "EIO"}),
            "I/O error in metadata log directory /d1. Cannot continue",
        ),
        (ensemble({"/d1": formatted(1)}, unformatted=("/d2",)), "No `meta.properties` found in /d2"),
        (ensemble({}, unreadable={"/d3": "EIO"}), "No readable meta.properties files found in /d3"),
        (ensemble({"/d1": MetaProperties(version=0, node_id=1)}), "cluster.id was not specified in /d1"),
        (ensemble({"/d1": MetaProperties(version=0, cluster_id="c")}), "node.id was not specified in /d1"),
        (ensemble({"/d1": formatted(1, node_id=2)}), "Stored node id 2"),
    ],
)
def test_what_keeps_a_daemon_from_starting(broken: MetaPropertiesEnsemble, complaint: str) -> None:
    with pytest.raises(MetaPropertiesConflict, match=complaint):
        verify_for_start(broken, node_id=1)


def test_a_new_directory_id_is_new_and_harmless_on_a_command_line() -> None:
    dash = Uuid(bytes([0xF8]) + bytes(15))
    assert uuid_text(dash).startswith("-")
    drawn = iter([Uuid(bytes(15) + b"\x05"), dash, directory(1), directory(2)])
    assert generate_directory_id(lambda: next(drawn), [directory(1)]) == directory(2)
