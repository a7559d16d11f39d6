"""Tests reading server.properties: Java's syntax, environment variables that override the file, and one-line errors."""

import os
from pathlib import Path

import pytest

from tools.errors import ToolError
from tools.node.configuration_file import load_config, read_config, read_properties

GOOD = """
# A comment.
process.roles = broker
node.id: 1
controller.quorum.voters=100@localhost:9093
controller.listener.names=CONTROLLER
log.dirs=/d1,\\
         /d2
"""


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(GOOD)
    return path


def test_a_file_is_read_as_java_reads_it(file: Path) -> None:
    """The file has comments, both separators, blanks around separators, continued lines, escapes and UTF-8."""
    file.write_text(GOOD + "broker.rack=gr\\u00fcn \\\\ größe\n", encoding="utf-8")
    found = read_properties(str(file)).values
    assert found["process.roles"] == "broker"
    assert found["node.id"] == "1"
    assert found["log.dirs"] == "/d1,/d2"
    assert found["broker.rack"] == "grün \\ größe"


def test_a_file_from_windows(file: Path) -> None:
    """It begins with a byte order mark, and its lines end with CR LF."""
    file.write_bytes(b"\xef\xbb\xbf" + GOOD.lstrip().replace("\n", "\r\n").encode())
    found = read_properties(str(file)).values
    assert (found["process.roles"], found["log.dirs"]) == ("broker", "/d1,/d2")
    file.write_bytes(b"\xef\xbb\xbfnode.id=1\r\n")
    assert read_properties(str(file)).values == {"node.id": "1"}


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_a_key_that_is_set_more_than_once(file: Path, line_end: str) -> None:
    """The last line counts, as in Apache Kafka. A warning names the key and its lines, of which one may be continued."""
    text = GOOD + "broker.rack=a\nlog.dirs = /d3\nbroker.rack=b\n! broker.rack=c\nbroker.rack:d\n"
    file.write_bytes(text.replace("\n", line_end).encode())
    config = read_config(str(file))
    assert (config.broker_rack, config.log_dirs) == ("d", ("/d3",))
    warnings = (
        "log.dirs is set more than once (lines 7, 10); all but the last are ignored",
        "broker.rack is set more than once (lines 9, 11, 13); all but the last are ignored",
    )
    assert config.doubts == warnings
    assert config.warnings == warnings


def test_the_environment_beats_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """KAFKA_* variables work as in Kafka's official image, with '_' for '.'. Variables that only the image's scripts read,
    such as KAFKA_HEAP_OPTS, are ignored."""
    monkeypatch.setenv("KAFKA_NODE_ID", "7")
    monkeypatch.setenv("KAFKA_MIN_INSYNC_REPLICAS", "2")
    monkeypatch.setenv("KAFKA_HEAP_OPTS", "-Xmx1G")
    found = read_properties(str(file)).values
    assert (found["node.id"], found["min.insync.replicas"]) == ("7", "2")
    assert "heap.opts" not in found
    assert load_config(found, str(file)).node_id == 7


@pytest.mark.parametrize(
    ("content", "text"), [(b"a=\\u12", "is not a properties file"), (b"broker.rack=gr\xfcn", "is not a properties file")]
)
def test_a_file_that_is_none(file: Path, content: bytes, text: str) -> None:
    """The file has broken escapes, or bytes that are not UTF-8."""
    file.write_bytes(content)
    with pytest.raises(ToolError, match=text) as caught:
        read_properties(str(file))
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """The file is missing, or is a folder."""
    with pytest.raises(ToolError, match=r"cannot read the configuration .*missing: No such file or directory"):
        read_properties(str(tmp_path / "missing"))
    with pytest.raises(ToolError, match="Is a directory"):
        read_properties(str(tmp_path))


def test_a_configuration_that_cannot_be_used_names_the_file_and_the_key(file: Path) -> None:
    """The error names the file and the key, so that the operator knows where to make the change."""
    with pytest.raises(ToolError, match=r"server\.properties: node\.id=x is not valid; it takes a whole number"):
        load_config(read_properties(str(file)).values | {"node.id": "x"}, str(file))


def test_a_value_that_is_not_the_files_says_where_it_comes_from(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise an operator looks for it in the file. A key that only begins like another one is not named."""
    monkeypatch.setenv("KAFKA_LOG_DIRS", "/d1,/d1")
    monkeypatch.setenv("KAFKA_LOG_DIR", "/other")
    with pytest.raises(ToolError) as caught:
        read_config(str(file))
    assert str(caught.value).endswith("; log.dirs comes from a KAFKA_* variable")
    assert "log.dir comes" not in str(caught.value)


def test_a_listener_without_a_host_is_advertised_by_this_machines_name(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The node listens on all interfaces, but clients need a host name."""
    monkeypatch.setattr("socket.gethostname", lambda: "this-machine")
    config = load_config(read_properties(str(file)).values | {"listeners": "PLAINTEXT://:9092"}, str(file))
    assert [endpoint.host for endpoint in config.advertised_listeners] == ["this-machine"]
