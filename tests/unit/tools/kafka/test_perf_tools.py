"""kafka-producer-perf-test and kafka-consumer-perf-test: their command lines. tests/interop runs them on a cluster."""

import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tools.kafka import consumer_perf_test, producer_perf_test
from tools.kafka.consumer_perf_test import DATE_FORMAT, _date_text

SERVER = "--bootstrap-server 127.0.0.1:1"
PRODUCER = f"{SERVER} --topic t --num-records 5 --throughput -1"
CONSUMER = f"{SERVER} --topic t --messages 5"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (f"{SERVER} --topic t --num-records 0 --throughput -1 --record-size 1", "--num-records should be greater than zero"),
        (f"{PRODUCER} --record-size 0", "--record-size should be greater than zero"),
        (f"{PRODUCER} --record-size 1 --transaction-duration-ms 0", "--transaction-duration-ms should be greater than zero"),
        (f"{PRODUCER} --record-size 1 --warmup-records 5", "--warmup-records should be at least zero and fewer than "),
        ("--topic t --num-records 5 --throughput -1 --record-size 1", "--bootstrap-server, or bootstrap.servers in "),
        (f"{PRODUCER} --record-size 1 --producer-props x", "--producer-props x is not KEY=VALUE"),
        (f"{PRODUCER} --record-size 1 --producer-props foo=bar", 'No such configuration property: "foo"'),
        (f"{PRODUCER} --payload-file /nowhere", "File does not exist or empty file provided: /nowhere: No such file"),
        (PRODUCER, "kafka-producer-perf-test: one of the arguments --record-size --payload-file --payload-monotonic is "),
        (f"{PRODUCER} --record-size 1 --payload-monotonic", "kafka-producer-perf-test: argument --payload-monotonic: not "),
        (f"{PRODUCER} --record-size many", "kafka-producer-perf-test: argument --record-size: invalid int value: 'many'"),
    ],
)
def test_wrong_arguments_of_the_producer(options: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(producer_perf_test.main, options, text, capsys)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (f"{CONSUMER} --reporting-interval 0", "Reporting interval must be greater than 0."),
        (f"{SERVER} --topic t --messages -1", "--messages must not be negative"),
        (f"{CONSUMER} --date-format QQ", "--date-format QQ: the field QQ is not supported"),
        (f"{CONSUMER} --command-property foo=bar", 'No such configuration property: "foo"'),
        (f"{CONSUMER} --consumer.config /nowhere", "cannot read the configuration /nowhere: No such file or directory"),
        (f"{SERVER} --topic t", "kafka-consumer-perf-test: the following arguments are required: --messages/--num-records"),
    ],
)
def test_wrong_arguments_of_the_consumer(options: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    check(consumer_perf_test.main, options, text, capsys)


def check(main: object, options: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(main)
    try:
        status = main(options.split())
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()
    assert status == 1
    assert captured.out in ("", "Reading payloads from: /nowhere\n")
    assert captured.err.splitlines()[0].startswith(text)


def test_payloads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The sequence of random payloads is the same in every run. Nothing behind the last delimiter is no payload."""

    def payloads(options: str) -> list[bytes]:
        arguments = producer_perf_test.command_line().parse_args(f"{PRODUCER} {options}".split())
        return list(producer_perf_test._payloads(arguments))

    assert payloads("--payload-monotonic") == [b"0", b"1", b"2", b"3", b"4"]
    letters = payloads("--record-size 20")
    assert letters == payloads("--record-size 20")
    assert {len(each) for each in letters} == {20}
    assert all(each.isalpha() and each.isupper() for each in letters)
    path = tmp_path / "payloads"
    path.write_bytes(b"a\nb\n\n")
    assert set(payloads(f"--payload-file {path}")) == {b"a", b"b"}
    assert capsys.readouterr().out == f"Reading payloads from: {path}\nNumber of messages read: 2\n"
    path.write_bytes(b"a;b")
    assert set(payloads(f"--payload-file {path} --payload-delimiter ;")) == {b"a", b"b"}


def test_times_in_the_formats_of_java() -> None:
    """Text in quotes is kept, and two quotes are one."""
    text = _date_text(1_700_000_000_012, DATE_FORMAT)
    assert len(text) == len("2023-11-14 22:13:20:012")
    assert text.endswith(":20:012")
    assert _date_text(1_700_000_000_012, "yy'y''x'''ssS") == "23y'x'2012"


class CallingBack:
    """A producer whose delivery reports run while `poll` does. As in confluent-kafka, what they raise is lost."""

    def __init__(self, report: Callable[[], None]) -> None:
        self._report = report

    def produce(self, _topic: str, _value: bytes, *, on_delivery: object) -> None:
        pass

    def poll(self, _timeout: float) -> int:
        with contextlib.suppress(KeyboardInterrupt):
            self._report()
        raise SystemError("<method 'poll' of 'cimpl.Producer' objects> returned NULL without setting an exception")

    def flush(self) -> int:
        return 0


PRODUCE = "--topic t --num-records 1 --record-size 1 --throughput -1 --bootstrap-server 127.0.0.1:1".split()


def test_ctrl_c_during_a_delivery_report(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    # Another library may have set one of its own in this process.
    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(
        producer_perf_test, "new_producer", lambda _: CallingBack(lambda: signal.raise_signal(signal.SIGINT))
    )
    assert producer_perf_test.main(PRODUCE) == 130
    assert capsys.readouterr() == ("", "")
    assert signal.getsignal(signal.SIGINT) is before


def test_without_ctrl_c_such_an_error_is_a_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_perf_test, "new_producer", lambda _: CallingBack(lambda: None))
    with pytest.raises(SystemError):
        producer_perf_test.main(PRODUCE)
