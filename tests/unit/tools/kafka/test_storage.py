"""Tests every message and exit status of kafka-storage: formatting on simulated disks, the whole tool on real folders."""

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from common.configuration.server import ServerConfig
from common.configuration.server_loading import load_server_config
from common.ids import DirectoryId, Uuid, uuid_from_text, uuid_text
from common.metadata.metadata_version import (
    DEFAULT_LEVEL,
    DIRECTORY_NUMBERING_FEATURE,
    GROUP_VERSION_FEATURE,
    TRANSACTION_VERSION_FEATURE,
    numbering_of,
)
from common.protocol.numbering import Numbering
from common.raft.bootstrap import bootstrap_records, read_bootstrap_checkpoint
from common.records.metadata_records import FeatureLevelRecord
from common.storage.meta_properties import MetaProperties, format_meta_properties, parse_meta_properties
from tests.simulation.environment import SimulatedWorld
from tools.errors import ToolError
from tools.kafka.storage import format_directories, main

CLUSTER = "cluster-of-the-tests--"
OTHER_CLUSTER = "another-cluster-------"
LEVEL = "3.9-IV0"


def properties(log_dirs: Sequence[str], metadata_log_dir: str, **more: str) -> dict[str, str]:
    return {
        "process.roles": "broker",
        "node.id": "1",
        "controller.quorum.voters": "100@controller:9093",
        "controller.listener.names": "CONTROLLER",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "log.dirs": ",".join(log_dirs),
        "metadata.log.dir": metadata_log_dir,
        **more,
    }


def meta(
    directory_id: bytes | None, *, cluster_id: str | None = CLUSTER, node_id: int | None = 1, version: int = 1
) -> bytes:
    """Returns the content of a meta.properties."""
    id_ = None if directory_id is None else DirectoryId(Uuid(directory_id))
    return format_meta_properties(MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=id_, version=version))


# --- formatting, on simulated disks ----------------------------------------------------------------------------------


class Disks:
    """/d1, /d2 and the metadata directory /m of node 1, some of them formatted already."""

    def __init__(self, contents: Mapping[str, bytes] | None = None) -> None:
        self.world = SimulatedWorld(seed=1)
        for path in ("/d1", "/d2", "/m"):
            self.world.disk(path)
        for path, content in (contents or {}).items():
            self.world.disk(path).write("meta.properties", content)
        self.config: ServerConfig = load_server_config(properties(["/d1", "/d2"], "/m"))
        self.said: list[str] = []
        self.explained: list[str] = []

    def format(self, *, ignore_formatted: bool = False, cluster_id: str = CLUSTER, level: int = DEFAULT_LEVEL) -> list[str]:
        """Formats, and returns what the tool printed. Afterwards every lock must be free."""

        async def scenario(world: SimulatedWorld) -> None:
            await format_directories(
                world.node("tool"),
                self.config,
                cluster_id=cluster_id,
                level=level,
                ignore_formatted=ignore_formatted,
                say=self.said.append,
                explain=self.explained.append,
            )

        try:
            self.world.run(scenario)
        finally:
            assert all(self.world.disk(path).lock_holder is None for path in ("/d1", "/d2", "/m"))
        return self.said

    def refused(self, *, ignore_formatted: bool = False, cluster_id: str = CLUSTER) -> str:
        with pytest.raises(ToolError) as caught:
            self.format(ignore_formatted=ignore_formatted, cluster_id=cluster_id)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    def meta(self, path: str) -> MetaProperties:
        return parse_meta_properties(self.world.disk(path).files()["meta.properties"])

    def formatted(self) -> list[str]:
        return [path for path in ("/d1", "/d2", "/m") if "meta.properties" in self.world.disk(path).files()]


def test_every_directory_gets_an_id_of_its_own_and_the_bootstrap_records() -> None:
    """Data and metadata directories are formatted in the order of their paths, with Kafka's lines."""
    disks = Disks()
    assert disks.format() == [
        f"Formatting data directory /d1 with metadata.version {LEVEL}.",
        f"Formatting data directory /d2 with metadata.version {LEVEL}.",
        f"Formatting metadata directory /m with metadata.version {LEVEL}.",
    ]
    ids = {disks.meta(path).directory_id for path in ("/d1", "/d2", "/m")}
    assert len(ids) == 3
    assert None not in ids
    for path in ("/d1", "/d2", "/m"):
        found = disks.meta(path)
        assert (found.cluster_id, found.node_id, found.version) == (CLUSTER, 1, 1)
        checkpoint = disks.world.disk(path).files()["bootstrap.checkpoint"]
        assert read_bootstrap_checkpoint(checkpoint) == bootstrap_records(DEFAULT_LEVEL)


def test_another_metadata_version_is_named_and_bootstrapped() -> None:
    """The output and the bootstrap records have the given metadata.version."""
    disks = Disks()
    assert disks.format(level=17)[0] == "Formatting data directory /d1 with metadata.version 3.7-IV2."
    assert read_bootstrap_checkpoint(disks.world.disk("/m").files()["bootstrap.checkpoint"]) == bootstrap_records(17)


def test_a_formatted_directory_is_refused() -> None:
    """Without -g the tool refuses to run, so even the unformatted directories stay unchanged."""
    disks = Disks({"/d2": meta(b"2" * 16)})
    assert disks.refused() == (
        "Log directory /d2 is already formatted. Use --ignore-formatted to ignore this directory and format the others."
    )
    assert disks.formatted() == ["/d2"]


def test_ignore_formatted_formats_the_others() -> None:
    """A dead disk is replaced in this way: existing ids stay, and the empty disk gets a new one."""
    disks = Disks({"/d1": meta(b"1" * 16), "/m": meta(b"m" * 16)})
    assert disks.format(ignore_formatted=True) == [f"Formatting data directory /d2 with metadata.version {LEVEL}."]
    assert disks.meta("/d1").directory_id == b"1" * 16
    assert disks.meta("/d2").directory_id not in (None, b"1" * 16, b"m" * 16)
    # A data directory that is formatted already gets no bootstrap records either.
    assert "bootstrap.checkpoint" not in disks.world.disk("/d1").files()


def test_all_are_formatted_already() -> None:
    """-g makes formatting idempotent: nothing changes, and there is no error."""
    contents = {"/d1": meta(b"1" * 16), "/d2": meta(b"2" * 16), "/m": meta(b"m" * 16)}
    disks = Disks(contents)
    assert disks.format(ignore_formatted=True) == ["All of the log directories are already formatted."]
    assert {path: disks.world.disk(path).files()["meta.properties"] for path in contents} == contents


def test_a_missing_directory_id_is_added() -> None:
    """With -g, a directory from before KIP-858 gets an id and keeps everything else."""
    disks = Disks({"/d1": meta(None), "/d2": meta(b"2" * 16), "/m": meta(b"m" * 16)})
    lines = disks.format(ignore_formatted=True)
    found = disks.meta("/d1")
    assert found.directory_id is not None
    assert found.directory_id not in (b"2" * 16, b"m" * 16)
    assert (found.cluster_id, found.node_id, found.version) == (CLUSTER, 1, 1)
    assert lines == [
        f"Added directory.id {uuid_text(found.directory_id)} to /d1.",
        "All of the log directories are already formatted.",
    ]


def test_an_unreadable_directory_is_named_and_skipped() -> None:
    """One dead disk must not keep the others from being formatted (KAFKA-16363). The tool prints Kafka's line and also the
    reason."""
    disks = Disks()
    disks.world.disk("/d1").fail_with(errno.EIO)
    assert disks.format() == [
        "I/O error trying to read log directory /d1. Ignoring...",
        f"Formatting data directory /d2 with metadata.version {LEVEL}.",
        f"Formatting metadata directory /m with metadata.version {LEVEL}.",
    ]
    (reason,) = disks.explained
    assert reason.startswith("/d1: ")
    assert "EIO" in reason
    assert disks.formatted() == ["/d2", "/m"]


@pytest.mark.parametrize("content", [b"\xff\xfe not properties \\u12", b"version=1\nnode.id=1\n", b"version=7\n"])
def test_a_meta_properties_that_cannot_be_read_makes_its_directory_unreadable(content: bytes) -> None:
    """Such a directory never counts as unformatted and is not overwritten, because its data may still be needed."""
    disks = Disks({"/d1": content})
    assert disks.format()[0] == "I/O error trying to read log directory /d1. Ignoring..."
    assert disks.world.disk("/d1").files()["meta.properties"] == content


def test_a_read_only_directory_is_unreadable() -> None:
    """A read-only directory cannot be locked, so it counts as unreadable."""
    disks = Disks()
    disks.world.disk("/d2").fail_with(errno.EROFS, ["lock", "replace_file"])
    assert "I/O error trying to read log directory /d2. Ignoring..." in disks.format()
    assert disks.formatted() == ["/d1", "/m"]


def test_a_disk_that_hangs_is_skipped_at_its_deadline() -> None:
    """A hanging disk does not keep the tool from ending."""
    disks = Disks()
    disks.world.disk("/d1").hang()
    disks.format()
    assert "ETIMEDOUT" in disks.explained[0]
    assert disks.formatted() == ["/d2", "/m"]


def test_nothing_that_could_be_formatted() -> None:
    """All directories are unreadable: the tool names each of them, then ends with an error."""
    disks = Disks()
    for path in ("/d1", "/d2", "/m"):
        disks.world.disk(path).fail_with(errno.EIO)
    assert disks.refused() == "No available log directories to format."
    assert disks.said == [f"I/O error trying to read log directory {path}. Ignoring..." for path in ("/d1", "/d2", "/m")]


@pytest.mark.parametrize(
    ("contents", "texts"),
    [
        ({"/d1": meta(b"1" * 16, cluster_id=OTHER_CLUSTER)}, ["Invalid cluster.id in: /d1/meta.properties", OTHER_CLUSTER]),
        ({"/d1": meta(b"1" * 16, node_id=2)}, ["Stored node id 2", "node.id 1", "/d1/meta.properties"]),
        ({"/d1": meta(b"1" * 16), "/d2": meta(b"1" * 16)}, ["Duplicate directory ID", "/d1", "/d2"]),
        ({"/d1": meta(bytes(15) + b"\x02")}, ["reserved directory ID AAAAAAAAAAAAAAAAAAAAAg", "/d1"]),
    ],
)
@pytest.mark.parametrize("ignore_formatted", [False, True])
def test_directories_that_contradict_are_refused(
    contents: dict[str, bytes], texts: list[str], ignore_formatted: bool
) -> None:
    """A directory belongs to another cluster or node, is a copy, or has a reserved id. The error is one line, and nothing is
    written."""
    disks = Disks(contents)
    line = disks.refused(ignore_formatted=ignore_formatted)
    assert all(text in line for text in texts), line
    assert disks.formatted() == list(contents)
    assert disks.said == []


def test_a_directory_in_use_is_refused() -> None:
    """A running node holds the lock of /d2. The tool releases the lock of /d1, which it took first."""
    disks = Disks({"/d1": meta(b"1" * 16), "/d2": meta(b"2" * 16), "/m": meta(b"m" * 16)})

    async def scenario(world: SimulatedWorld) -> None:
        holder = world.node("running").log_dir("/d2", operation_timeout_ns=10**9)
        await holder.attach()
        await holder.lock()
        with pytest.raises(ToolError, match="Log directory /d2 is in use"):
            await format_directories(world.node("tool"), disks.config, cluster_id=CLUSTER, level=21, ignore_formatted=True)
        assert disks.world.disk("/d1").lock_holder is None

    disks.world.run(scenario)


def test_a_disk_that_dies_while_it_is_formatted_is_an_error() -> None:
    """meta.properties is written last, so the directory still counts as unformatted."""
    disks = Disks()
    disks.world.disk("/d2").fail_next("replace_file", errno.EIO)
    assert "cannot format: replace_file on /d2/bootstrap.checkpoint failed with EIO" in disks.refused()
    assert disks.formatted() == ["/d1"]


# --- the tool, on real folders ---------------------------------------------------------------------------------------


class Tool:
    """Runs main() with a server.properties of two data directories and a metadata directory below tmp_path."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.d1, self.d2, self.m = (str(folder / name) for name in ("d1", "d2", "m"))
        self.config = folder / "server.properties"
        self._capsys = capsys
        self.write()

    def write(self, **more: str) -> None:
        lines = properties([self.d1, self.d2], self.m, **{key.replace("_", "."): value for key, value in more.items()})
        self.config.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))

    def __call__(self, *arguments: str) -> tuple[int, list[str], list[str]]:
        """Returns the exit status and the lines of stdout and stderr."""
        try:
            status = main(list(arguments))
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else -1
        captured = self._capsys.readouterr()
        return status, captured.out.splitlines(), captured.err.splitlines()

    def format(self, *more: str) -> tuple[int, list[str], list[str]]:
        return self("format", "--config", str(self.config), "--cluster-id", CLUSTER, *more)

    def info(self) -> tuple[int, list[str]]:
        status, out, err = self("info", "-c", str(self.config))
        assert err == []
        return status, out

    def put(self, path: str, content: bytes) -> None:
        Path(path).mkdir(exist_ok=True)
        (Path(path) / "meta.properties").write_bytes(content)


@pytest.fixture
def tool(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Tool:
    for name in [name for name in os.environ if name.startswith("KAFKA_")]:
        monkeypatch.delenv(name)
    return Tool(tmp_path, capsys)


def test_random_uuids_are_never_taken_for_an_option(tool: Tool) -> None:
    """The tool prints a UUID that never begins with '-', because a command line would take such an id for an option."""
    drawn = set()
    for _ in range(20):
        status, (text,), err = tool("random-uuid")
        assert (status, err) == (0, [])
        assert not text.startswith("-")
        assert len(uuid_from_text(text)) == 16
        drawn.add(text)
    assert len(drawn) == 20


@pytest.mark.parametrize("option", ["-t", "--cluster-id"])
def test_an_id_from_zookeeper_may_begin_with_a_hyphen(tool: Tool, option: str) -> None:
    """The id of a cluster that comes from ZooKeeper is what it is. What is no id is still an option."""
    cluster_id = "-itncRqcS72pLEvO7beW-w"
    status, _, err = tool("format", "-c", str(tool.config), option, cluster_id, "-g")
    assert (status, err) == (0, [])
    assert parse_meta_properties((Path(tool.d1) / "meta.properties").read_bytes()).cluster_id == cluster_id
    status, _, err = tool("format", "-c", str(tool.config), option, "-g")
    assert status == 1
    assert "expected one argument" in err[0]


def test_format_makes_the_directories_and_info_shows_them(tool: Tool) -> None:
    """Formats the directories, checks which files that leaves on the disk, and shows the directories with info."""
    assert tool.format() == (
        0,
        [
            f"Formatting data directory {tool.d1} with metadata.version {LEVEL}.",
            f"Formatting data directory {tool.d2} with metadata.version {LEVEL}.",
            f"Formatting metadata directory {tool.m} with metadata.version {LEVEL}.",
        ],
        [],
    )
    found = parse_meta_properties((Path(tool.d1) / "meta.properties").read_bytes())
    assert found.directory_id is not None
    assert sorted(path.name for path in Path(tool.d1).iterdir()) == [".lock", "bootstrap.checkpoint", "meta.properties"]
    directory_id = uuid_text(found.directory_id)
    assert tool.info() == (
        0,
        [
            "Found log directories:",
            f"  {tool.d1}",
            f"  {tool.d2}",
            f"  {tool.m}",
            "",
            f"Found metadata: {{cluster.id={CLUSTER}, directory.id={directory_id}, node.id=1, version=1}}",
            "",
            "Found directory numbering: kip-858",
            "",
        ],
    )


def test_formatting_twice_is_an_error_unless_ignored(tool: Tool) -> None:
    """Formatting a second time is an error on stderr, except with -g."""
    tool.format()
    status, out, err = tool.format()
    assert (status, out) == (1, [])
    assert err == [
        f"Log directory {tool.d1} is already formatted. "
        "Use --ignore-formatted to ignore this directory and format the others."
    ]
    assert tool.format("-g") == (0, ["All of the log directories are already formatted."], [])


def test_format_with_an_unreadable_directory(tool: Tool) -> None:
    """A file stands where a directory should. Kafka's line is on stdout, the reason is on stderr, and the exit status is
    0."""
    Path(tool.d1).write_text("no directory")
    status, out, err = tool.format()
    assert status == 0
    assert out[0] == f"I/O error trying to read log directory {tool.d1}. Ignoring..."
    assert len(err) == 1
    assert err[0].startswith(f"{tool.d1}: ")


def test_format_for_another_cluster(tool: Tool) -> None:
    """The error is one line without a traceback, and the exit status is 1."""
    tool.format()
    status, out, (line,) = tool("format", "-c", str(tool.config), "-t", OTHER_CLUSTER, "-g")
    assert (status, out) == (1, [])
    assert f"Expected {OTHER_CLUSTER}, but read {CLUSTER}" in line


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        (["--release-version", "3.7"], "3.7-IV4"),
        (["-r", "3.8-IV0"], "3.8-IV0"),
        (["--feature", "metadata.version=17"], "3.7-IV2"),
        (["-f", "metadata.version=3.9"], "3.9-IV0"),
        ([], LEVEL),
    ],
)
def test_format_with_a_release_or_a_level(tool: Tool, flags: list[str], level: str) -> None:
    """The level is given by name, by release or by number, or is the default."""
    status, out, _ = tool.format(*flags)
    assert status == 0
    assert out[0].endswith(f"with metadata.version {level}.")


@pytest.mark.parametrize(
    ("flags", "numbering"),
    [
        ([], Numbering.KIP858),
        (["--directory-numbering", "kip-858"], Numbering.KIP858),
        (["--directory-numbering", "apache"], Numbering.APACHE),
    ],
)
def test_format_with_a_directory_numbering(tool: Tool, flags: list[str], numbering: Numbering) -> None:
    """The bootstrap records of a cluster with Apache's numbering have no feature of our own, so Apache's nodes can join."""
    assert tool.format(*flags)[0] == 0
    records = read_bootstrap_checkpoint((Path(tool.m) / "bootstrap.checkpoint").read_bytes())
    names = [entry.record.name for entry in records if isinstance(entry.record, FeatureLevelRecord)]
    assert (DIRECTORY_NUMBERING_FEATURE in names) is (numbering is Numbering.KIP858)
    assert numbering_of([entry.record for entry in records]) is numbering
    assert f"Found directory numbering: {numbering.value}" in tool.info()[1]


@pytest.mark.parametrize(
    ("flags", "level"),
    [
        ([], 2),
        (["-f", "transaction.version=1"], 1),
        (["-f", "transaction.version=0"], 0),
        (["-r", "3.9"], 0),
        (["-r", "3.9", "-f", "transaction.version=2"], 2),
        (["-f", "metadata.version=21"], 0),
        (["--directory-numbering", "apache"], 0),
    ],
)
def test_format_with_a_transaction_version(tool: Tool, flags: list[str], level: int) -> None:
    """By default clients of Kafka 4 find what they expect. A named release has what it has in Kafka."""
    assert tool.format(*flags)[0] == 0
    records = read_bootstrap_checkpoint((Path(tool.m) / "bootstrap.checkpoint").read_bytes())
    levels = {each.record.name: each.record.feature_level for each in records if isinstance(each.record, FeatureLevelRecord)}
    assert levels.get(TRANSACTION_VERSION_FEATURE, 0) == level


@pytest.mark.parametrize("level", [0, 1])
def test_format_with_a_group_version(tool: Tool, level: int) -> None:
    """Brokers of Apache Kafka serve the consumer protocol at level 1."""
    assert tool.format("-f", f"group.version={level}")[0] == 0
    records = read_bootstrap_checkpoint((Path(tool.m) / "bootstrap.checkpoint").read_bytes())
    levels = {each.record.name: each.record.feature_level for each in records if isinstance(each.record, FeatureLevelRecord)}
    assert (levels.get(GROUP_VERSION_FEATURE, 0), levels[TRANSACTION_VERSION_FEATURE]) == (level, 2)


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["-r", "9.9"], "'9.9' is no metadata.version"),
        (["-f", "metadata.version="], "'' is no metadata.version"),
        (["-f", "metadata.version"], "it takes metadata.version=LEVEL"),
        (["-f", "share.version=1"], "share.version=1 is not supported"),
        (["-f", "group.version=2"], "there is no such level; known are 0, 1"),
        (["-f", "transaction.version=3"], "there is no such level; known are 0, 1, 2"),
        (["-f", "transaction.version=1", "-r", "3.3-IV2"], "transaction.version=1 needs metadata.version 3.3-IV3"),
        (["-r", "3.9", "-f", "metadata.version=21"], "mutually exclusive"),
        (["-r", "3.2-IV0"], "metadata.version 3.2-IV0 cannot be formatted; it must be between 3.3-IV0 and 4.4-IV2"),
        (["-r", "4.5-IV0"], "4.5-IV0"),
    ],
)
def test_format_with_a_level_that_is_none(tool: Tool, flags: list[str], text: str) -> None:
    """The error is one line, the exit status is 1, and no directory is created."""
    status, out, (line,) = tool.format(*flags)
    assert (status, out) == (1, [])
    assert text in line
    assert not Path(tool.d1).exists()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "usage: kafka-storage"),
        (["format"], "--config"),
        (["format", "-c", "x"], "--cluster-id"),
        (["frobnicate"], "invalid choice"),
        (["info"], "--config"),
        (["format", "-c", "x", "-t", "y", "--no-such-flag"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line(tool: Tool, arguments: list[str], text: str) -> None:
    """The exit status is 1 as in Kafka's tools, not argparse's 2."""
    status, out, err = tool(*arguments)
    assert (status, out) == (1, [])
    assert text in err[0]


def test_a_configuration_that_cannot_be_used(tool: Tool) -> None:
    """The file is unreadable, lacks a role, or has a bad value. The error is one line that names the file or the key."""
    status, _, (line,) = tool("info", "-c", str(tool.folder / "missing"))
    assert (status, "cannot read the configuration" in line) == (1, True)
    tool.write(process_roles="")
    status, _, (line,) = tool.format()
    assert (status, "process.roles" in line) == (1, True)
    tool.write(log_dirs="relative")
    status, _, (line,) = tool.format()
    assert (status, "log.dirs=relative" in line) == (1, True)


def test_a_path_that_cannot_become_a_directory(tool: Tool) -> None:
    """One path is a file. The reason on stderr says what to do, and the other directories are formatted."""
    Path(tool.d1).write_text("mine")
    status, out, (line,) = tool.format()
    assert (status, out[0]) == (0, f"I/O error trying to read log directory {tool.d1}. Ignoring...")
    assert line == f"{tool.d1}: it is not a directory; remove that file, or name another path in log.dirs"
    assert Path(tool.d1).read_text() == "mine"


@pytest.mark.parametrize(
    ("operation", "code", "text"),
    [
        ("attach", errno.EACCES, "permission denied; let the user who runs the node write to it"),
        ("lock", errno.EACCES, "permission denied; let the user who runs the node write to it"),
        ("lock", errno.EROFS, "its file system is read-only; mount it for writing"),
        ("lock", errno.EIO, "lock on /d1/.lock failed with EIO"),
        ("attach", errno.ENOENT, "it can be neither opened nor created (attach on /d1 failed with ENOENT)"),
    ],
)
def test_the_reason_why_a_directory_is_skipped(operation: str, code: int, text: str) -> None:
    """What is explained is the way out, not the name of the operation."""
    disks = Disks()
    disks.world.disk("/d1").fail_next(operation, code)
    disks.format()
    assert disks.explained == [f"/d1: {text}"]


def test_an_empty_cluster_id_is_refused(tool: Tool) -> None:
    """It is what a shell makes of `$(kafka-storage random-uuid)` if that is not found."""
    assert tool("format", "-c", str(tool.config), "-t", " ") == (
        1,
        [],
        ["--cluster-id is empty; kafka-storage random-uuid makes one"],
    )
    assert not Path(tool.d1).exists()


def test_a_mistyped_key_is_named(tool: Tool) -> None:
    """A typo in log.dirs formats nothing. Another one is a warning on stderr, also of `info`."""
    content = tool.config.read_text()
    tool.config.write_text(content.replace("log.dirs=", "log.dirss="))
    status, out, (line,) = tool.format()
    assert (status, out) == (1, [])
    assert line.endswith("log.dirss is not a known key, and log.dirs is not set; is log.dirs meant?")
    tool.config.write_text(content + "num.partitoins=3\n")
    warning = f"{tool.config}: num.partitoins is not a known key; it is ignored (is num.partitions meant?)"
    status, out, err = tool.format()
    assert (status, len(out), warning in err) == (0, 3, True)
    status, _, err = tool("info", "-c", str(tool.config))
    assert (status, warning in err) == (0, True)


@pytest.mark.parametrize(
    ("roles", "flags", "text"),
    [
        ("broker,controller", [], "--standalone makes it the cluster's only controller"),
        ("broker,controller", ["--no-initial-controllers"], "--standalone makes it the cluster's only controller"),
        ("broker,controller", ["-s", "-N"], "not allowed with argument"),
        ("broker", ["--standalone"], "--standalone is for controllers"),
    ],
)
def test_a_controller_without_voters_is_formatted_only_on_demand(
    tool: Tool, roles: str, flags: list[str], text: str
) -> None:
    """Without --standalone, a second controller that names itself as the bootstrap server would split the cluster."""
    tool.config.write_text(stock(tool, roles))
    status, out, err = tool.format(*flags)
    assert (status, out) == (1, [])
    assert text in err[0]
    assert not Path(tool.d1).exists()


def test_the_stock_file_of_kafka_4_1_is_formatted_with_standalone(tool: Tool) -> None:
    """--standalone also suits a controller that lists itself as the voter, and no node that is only a broker."""
    tool.config.write_text(stock(tool, "broker,controller"))
    status, out, err = tool.format("--standalone")
    assert (status, err) == (0, [])
    assert out == [f"Formatting metadata directory {tool.d1} with metadata.version {LEVEL}."]
    tool.config.write_text(stock(tool, "broker,controller") + "controller.quorum.voters=1@localhost:9093\n")
    assert tool.format("--standalone", "--ignore-formatted")[0] == 0
    tool.write()
    status, _, (line,) = tool.format("--standalone")
    assert (status, line) == (1, "--standalone is for controllers; this node is only a broker (process.roles)")


def test_the_metadata_directory_gets_the_id_of_the_initial_controller(tool: Tool) -> None:
    """The value is what an operator gives to every controller of Apache Kafka, here for one controller."""
    tool.config.write_text(stock(tool, "broker,controller"))
    given = "MvDxzVmcRsaTz33bUuRU6A"
    status, out, err = tool.format("--initial-controllers", f" 1@localhost:9093:{given} ,")
    assert (status, err) == (0, [])
    assert out == [f"Formatting metadata directory {tool.d1} with metadata.version {LEVEL}."]
    assert f"directory.id={given}" in (Path(tool.d1) / "meta.properties").read_text().splitlines()
    # A second disk of the node may not get the same id.
    (Path(tool.d1) / "meta.properties").unlink()
    tool.config.write_text(tool.config.read_text().replace(tool.d1, f"{tool.d1},{tool.d2}"))
    Path(tool.d2).mkdir()
    taken = f"version=1\ncluster.id={CLUSTER}\nnode.id=1\ndirectory.id={given}\n"
    (Path(tool.d2) / "meta.properties").write_text(taken)
    status, _, (line,) = tool.format("--initial-controllers", f"1@localhost:9093:{given}", "--ignore-formatted")
    assert (status, line) == (1, f"the directory id {given} is already that of another log directory")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no controllers are given"),
        (" , ", "no controllers are given"),
        ("1", "'1' is not ID@HOST:PORT:DIRECTORY_ID"),
        ("@localhost:9093:MvDxzVmcRsaTz33bUuRU6A", "is not a number from 0 to 2147483647"),
        ("x@localhost:9093:MvDxzVmcRsaTz33bUuRU6A", "is not a number from 0 to 2147483647"),
        ("1@localhost:MvDxzVmcRsaTz33bUuRU6A", "'localhost' is not host:port"),
        ("1@localhost:x:MvDxzVmcRsaTz33bUuRU6A", "'localhost:x' is not host:port"),
        ("1@:9093:MvDxzVmcRsaTz33bUuRU6A", "has no host"),
        ("1@localhost:9093:MvDxzVmcRsaTz", "is not a base64url uuid"),
        ("1@localhost:9093:AAAAAAAAAAAAAAAAAAAAAA", "is reserved"),
        ("1@localhost:9093:MvDxzVmcRsaTz33bUuRU6A,1@h:1:4L62QyJOQ9G0Xk0e4VDDLQ", "node id 1 is given more than once"),
        ("1@localhost:9093:MvDxzVmcRsaTz33bUuRU6A,2@h:1:4L62QyJOQ9G0Xk0e4VDDLQ", "a cluster has one controller, not 2"),
        ("2@localhost:9093:MvDxzVmcRsaTz33bUuRU6A", "the node id 2 is not that of this node, which is 1"),
        ("1@other:9093:MvDxzVmcRsaTz33bUuRU6A", "the address other:9093 is not that of this node, which is localhost:9093"),
    ],
)
def test_initial_controllers_that_do_not_fit_are_refused(tool: Tool, text: str, message: str) -> None:
    tool.config.write_text(stock(tool, "broker,controller"))
    status, out, (line,) = tool.format("--initial-controllers", text)
    assert (status, out) == (1, [])
    assert line.startswith("--initial-controllers: ") and message in line
    assert not Path(tool.d1).exists()


def test_a_broker_is_no_initial_controller(tool: Tool) -> None:
    tool.write()
    status, _, (line,) = tool.format("--initial-controllers", "1@localhost:9093:MvDxzVmcRsaTz33bUuRU6A")
    assert (status, line) == (1, "--initial-controllers is for controllers; this node is only a broker (process.roles)")


def stock(tool: Tool, roles: str) -> str:
    """Returns the part of the server.properties of Apache Kafka 4.1 that matters here."""
    controller = ",CONTROLLER://{}:9093" if "controller" in roles else ""
    return (
        f"process.roles={roles}\nnode.id=1\ncontroller.quorum.bootstrap.servers=localhost:9093\n"
        f"listeners=PLAINTEXT://:9092{controller.format('')}\n"
        f"advertised.listeners=PLAINTEXT://localhost:9092{controller.format('localhost')}\n"
        f"controller.listener.names=CONTROLLER\nlog.dirs={tool.d1}\n"
    )


def test_info_of_directories_that_are_missing_or_none(tool: Tool) -> None:
    """Prints each problem in Kafka's words and exits with status 1. An unformatted directory still counts as found."""
    Path(tool.d1).write_text("no directory")
    Path(tool.m).mkdir()
    assert tool.info() == (
        1,
        [
            "Found log directory:",
            f"  {tool.m}",
            "",
            "Found problems:",
            f"  {tool.d2} does not exist",
            f"  {tool.d1} is not a directory",
            f"  {tool.m} is not formatted.",
            "",
        ],
    )
    assert not Path(tool.d2).exists()


def test_info_of_a_file_that_cannot_be_read(tool: Tool) -> None:
    """A directory with a damaged meta.properties is still listed. For a single problem the heading is "Found problem"."""
    tool.format()
    tool.put(tool.d2, b"version=1\ncluster.id=x\n")
    status, out = tool.info()
    assert status == 1
    assert f"  {tool.d2}" in out
    assert out[-3:] == ["Found problem:", f"  Error loading {tool.d2}/meta.properties: node.id is missing", ""]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (meta(b"2" * 16, cluster_id=OTHER_CLUSTER), "Mismatched cluster IDs between storage directories."),
        (meta(b"2" * 16, node_id=2), "Mismatched node IDs between storage directories."),
        (meta(bytes(16)), "Invalid reserved directory ID AAAAAAAAAAAAAAAAAAAAAA found in {d2}"),
    ],
)
def test_info_of_directories_that_disagree(tool: Tool, content: bytes, problem: str) -> None:
    """If Kafka has a line for the problem, the tool prints it. Otherwise it prints why the node would not start."""
    tool.format()
    tool.put(tool.d2, content)
    status, out = tool.info()
    assert status == 1
    assert out[-3] == "Found problem:"
    assert out[-2].startswith("  " + problem.format(d2=tool.d2))


def test_info_of_another_nodes_directories(tool: Tool) -> None:
    """The directories agree with each other, but not with the configuration."""
    tool.format()
    tool.write(node_id="2")
    status, out = tool.info()
    assert status == 1
    assert "Stored node id 1 doesn't match the configured node.id 2" in out[-2]


def test_info_of_directories_from_zookeeper_times(tool: Tool) -> None:
    """Version 0 has broker.id instead of node.id. Kafka calls that legacy mode."""
    tool.put(tool.d1, meta(None, version=0))
    tool.put(tool.d2, meta(None, version=0))
    tool.put(tool.m, meta(None, version=0))
    status, out = tool.info()
    assert status == 1
    assert f"Found metadata: {{broker.id=1, cluster.id={CLUSTER}, version=0}}" in out
    assert "legacy mode" in out[-2]


def test_a_release_is_mapped_to_its_metadata_version(tool: Tool) -> None:
    """Prints the metadata.version of the default release and of a given one. An unknown release is an error."""
    mapped = [f"metadata.version=21 ({LEVEL})", "kraft.version=0", "transaction.version=2"]
    assert tool("version-mapping") == (0, mapped, [])
    mapped = ["metadata.version=19 (3.7-IV4)", "kraft.version=0", "transaction.version=0"]
    assert tool("version-mapping", "-r", "3.7") == (0, mapped, [])
    assert tool("version-mapping", "-r", "1.0")[0] == 1


def test_feature_dependencies(tool: Tool) -> None:
    """No feature of this release requires another. Several may be named, and an unknown one is an error."""
    status, out, err = tool("feature-dependencies", "-f", "metadata.version=17", "-f", "kraft.version=0")
    assert (status, err) == (0, [])
    assert out == ["metadata.version=17 (3.7-IV2) has no dependencies.", "kraft.version=0 has no dependencies."]
    for feature, text in (
        ("metadata.version=99", "Unknown metadata.version 99"),
        ("kraft.version=1", "No feature:kraft.version with feature level 1"),
        ("share.version=1", "Unknown feature: share.version"),
        ("group.version", "Can't parse feature=level string group.version: equals sign not found."),
        ("a=b", "Can't parse feature=level string a=b: unable to parse b as a short."),
    ):
        assert tool("feature-dependencies", "--feature", feature) == (1, [], [text])


@pytest.mark.parametrize("arguments", [["--version"], ["format", "--version"]])
def test_the_version_is_shown_everywhere(tool: Tool, arguments: list[str]) -> None:
    """--version works with and without an action."""
    status, (line,), _ = tool(*arguments)
    assert status == 0
    assert line.startswith("diskraft ")
