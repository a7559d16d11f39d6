"""What the benchmarks say about the interpreter."""

import sysconfig

import pytest

from tests.benchmarks.measuring import is_optimized_build

_GENERATE, _USE = "-fprofile-generate", "-fprofile-use -fprofile-correction"


@pytest.mark.parametrize(
    ("arguments", "generate", "use", "expected"),
    [
        ("'--enable-shared' '--enable-optimizations'", _GENERATE, _USE, True),
        ("'--enable-shared'", _GENERATE, _USE, False),
        # Debian's packages.
        ("'--enable-shared' '--prefix=/usr'", _GENERATE, "", True),
        # A compiler that knows no profiles.
        ("'--prefix=/usr'", "", "", False),
        (None, None, None, False),
    ],
)
def test_a_build_with_profiles_is_recognised(
    monkeypatch: pytest.MonkeyPatch, arguments: str | None, generate: str | None, use: str | None, expected: bool
) -> None:
    known = {"CONFIG_ARGS": arguments, "PGO_PROF_GEN_FLAG": generate, "PGO_PROF_USE_FLAG": use}
    monkeypatch.setattr(sysconfig, "get_config_var", known.get)
    assert is_optimized_build() is expected
