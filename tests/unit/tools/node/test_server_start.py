"""What a daemon refuses before it starts."""

import pytest

from tools.node import server_start


def test_a_misspelt_log_format_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LOG_FORMAT", "jsno")
    with pytest.raises(SystemExit) as ended:
        server_start.main(["server.properties"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "LOG_FORMAT=jsno is neither json nor console\n"
