"""kcat, with the oldest protocol versions still in use (librdkafka 2.0): list, produce, consume."""

import os
import shutil
import subprocess
from collections.abc import Callable

import pytest

from tools.lab.local_cluster import LocalCluster

SECONDS_MAX = 60


@pytest.fixture(scope="module")
def kcat() -> str:
    """Returns the path of kcat. Without kcat the test is skipped, or fails in CI."""
    found = shutil.which("kcat")
    if found is None:
        message = "kcat is missing, nothing of test_kcat was tested (Debian: apt install kcat)"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return found


def run(*command: str, given: str | None = None) -> str:
    """Returns the program's output. Its exit status must be 0."""
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_list_shows_brokers_and_topics(kcat: str, cluster: LocalCluster, topic: str) -> None:
    """`kcat -L` lists every broker with its port, one of them as controller, and every partition with all its replicas in
    sync. kcat asks only broker 2, so the output shows that broker's metadata."""
    port = cluster.broker(2).files.port
    lines = run(kcat, "-L", "-b", f"127.0.0.1:{port}", "-t", topic).splitlines()
    for node in cluster.brokers:
        assert any(f"broker {node.files.node_id} at 127.0.0.1:{node.files.port}" in line for line in lines)
    assert sum("(controller)" in line for line in lines) == 1
    assert f'  topic "{topic}" with 3 partitions:' in lines
    described = [line.strip() for line in lines if line.startswith("    partition ")]
    assert len(described) == 3
    for number, line in enumerate(sorted(described)):
        name, leader, replicas, isrs = line.split(", ")
        assert name == f"partition {number}"
        assert leader.removeprefix("leader ") in {"1", "2", "3"}
        assert sorted(replicas.removeprefix("replicas: ").split(",")) == ["1", "2", "3"]
        assert sorted(isrs.removeprefix("isrs: ").split(",")) == ["1", "2", "3"]


def test_what_one_kcat_writes_another_reads_in_order(kcat: str, bootstrap: str, topic: str) -> None:
    """One kcat writes records with keys and headers; another reads them in order, from the beginning and by offset."""
    given = "".join(f"key-{number}:value {number}\n" for number in range(100))
    run(
        *(kcat, "-P", "-b", bootstrap, "-t", topic, "-p", "1", "-K:", "-z", "gzip"),
        *("-H", "origin=kcat", "-X", "acks=all"),
        given=given,
    )
    assert run(kcat, "-C", "-b", bootstrap, "-t", topic, "-p", "1", "-e", "-q", "-K:") == given
    last = run(kcat, "-C", "-b", bootstrap, "-t", topic, "-p", "1", "-o", "99", "-e", "-q", "-f", r"%o|%k|%s|%h\n")
    assert last == "99|key-99|value 99|origin=kcat\n"


def test_query_offsets_by_time(kcat: str, bootstrap: str, topic: str) -> None:
    """For the time -1, `kcat -Q` returns the end offset. For a time before all records, it returns the first offset."""
    run(kcat, "-P", "-b", bootstrap, "-t", topic, "-p", "0", given="one\ntwo\nthree\n")
    assert run(kcat, "-Q", "-b", bootstrap, "-t", f"{topic}:0:-1") == f"{topic} [0] offset 3\n"
    assert run(kcat, "-Q", "-b", bootstrap, "-t", f"{topic}:0:0") == f"{topic} [0] offset 0\n"


def test_topic_is_made_by_the_first_record(kcat: str, bootstrap: str, new_topic_name: Callable[[], str]) -> None:
    """Auto creation: writing to a missing topic creates it."""
    name = new_topic_name()
    run(kcat, "-P", "-b", bootstrap, "-t", name, given="first\n")
    assert run(kcat, "-C", "-b", bootstrap, "-t", name, "-e", "-q") == "first\n"


@pytest.mark.slow
def test_a_kcat_in_a_group_goes_on_where_another_stopped(
    kcat: str, bootstrap: str, topic: str, new_topic_name: Callable[[], str]
) -> None:
    """`kcat -G` joins a group, reads, commits and leaves. The next one in the same group reads only what is new."""
    group = f"group-{new_topic_name()}"
    member = (kcat, "-b", bootstrap, "-G", group, "-X", "auto.offset.reset=earliest", "-q")
    for values in (["one", "two", "three"], ["four"]):
        run(kcat, "-P", "-b", bootstrap, "-t", topic, "-p", "0", given="".join(f"{value}\n" for value in values))
        assert run(*member, "-c", str(len(values)), topic).splitlines() == values
