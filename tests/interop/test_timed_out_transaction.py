"""A Java producer whose transaction the coordinator has aborted because of its timeout.

With transaction.version 2 it goes on after an abort of its own: the answer to its EndTxn carries the epoch that the
coordinator's abort has raised. Should the coordinator take it for a zombie, only a new producer would help. The program
prints the same with Apache Kafka 4.1.1 and 4.4.0.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.apache_kafka_tools import Kafka

SOURCE = Path(__file__).with_name("TimedOutTransaction.java")
SECONDS_MAX = 120


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "expected"),
    [("abort", ["aborted", "committed"]), ("send", ["send: InvalidProducerEpochException", "aborted", "committed"])],
)
def test_a_producer_that_missed_its_timeout_goes_on(
    kafka: Kafka, bootstrap: str, topic: str, new_topic_name: Callable[[], str], step: str, expected: list[str]
) -> None:
    if shutil.which("javac") is None:
        pytest.skip("NOTHING WAS TESTED WITH APACHE KAFKA: javac is missing (Debian: apt install openjdk-17-jdk-headless)")
    command = kafka.command(str(SOURCE), bootstrap, topic, f"id-{new_topic_name()}", step)
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.stdout.splitlines() == expected, done.stderr
    assert done.returncode == 0, done.stderr
