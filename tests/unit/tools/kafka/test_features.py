"""kafka-features: its output and exit status, which equal Kafka's, and the requests that it sends."""

from collections.abc import Iterator

import pytest

from admin.features import feature_metadata
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey
from common.protocol.messages.update_features import (
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
    UpgradeType,
)
from tests.unit.tools.fake_broker import FakeBroker
from tools.kafka.features import main

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker({ApiKey.UPDATE_FEATURES: lambda _: UpdateFeaturesResponse()}) as fake:
        yield fake


def features(broker: FakeBroker, *arguments: str) -> int:
    return main(["--bootstrap-server", str(broker.address), *arguments])


def asked(broker: FakeBroker) -> list[tuple[str, int, int]]:
    """Returns the updates in the last request."""
    request = broker.requests[-1]
    assert isinstance(request, UpdateFeaturesRequest)
    return sorted((each.feature, each.max_version_level, each.upgrade_type) for each in request.feature_updates)


@pytest.mark.parametrize(
    ("arguments", "updates", "lines"),
    [
        (
            ["upgrade", "--feature", "metadata.version=17"],
            [("metadata.version", 17, UpgradeType.UPGRADE)],
            ["metadata.version was upgraded to 17."],
        ),
        (
            ["upgrade", "--release-version", "3.9-IV0"],
            [("metadata.version", 21, UpgradeType.UPGRADE)],
            ["metadata.version was upgraded to 21."],
        ),
        (
            ["upgrade", "--metadata", "3.8"],
            [("metadata.version", 20, UpgradeType.UPGRADE)],
            [
                " `metadata` flag is deprecated and may be removed in a future release.",
                "metadata.version was upgraded to 20.",
            ],
        ),
        (
            ["downgrade", "--feature", "metadata.version=16", "--dry-run"],
            [("metadata.version", 16, UpgradeType.SAFE_DOWNGRADE)],
            ["metadata.version can be downgraded to 16."],
        ),
        (
            ["downgrade", "--unsafe", "--release-version", "3.6"],
            [
                ("kraft.version", 0, UpgradeType.UNSAFE_DOWNGRADE),
                ("metadata.version", 14, UpgradeType.UNSAFE_DOWNGRADE),
                ("transaction.version", 0, UpgradeType.UNSAFE_DOWNGRADE),
            ],
            [
                "kraft.version was downgraded to 0.",
                "metadata.version was downgraded to 14.",
                "transaction.version was downgraded to 0.",
            ],
        ),
        (
            ["disable", "--feature", "b", "--feature", "a"],
            [("a", 0, UpgradeType.SAFE_DOWNGRADE), ("b", 0, UpgradeType.SAFE_DOWNGRADE)],
            ["a was disabled.", "b was disabled."],
        ),
    ],
)
def test_a_change_that_succeeds(
    broker: FakeBroker, capsys: Captured, arguments: list[str], updates: list[tuple[str, int, int]], lines: list[str]
) -> None:
    """One request has all updates. A dry run says so in the request and in the output."""
    assert features(broker, *arguments) == 0
    assert asked(broker) == updates
    assert broker.requests[-1].validate_only is ("--dry-run" in arguments)
    assert capsys.readouterr().out.splitlines() == lines


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["upgrade", "--feature", "a=1", "--feature", "b=2"],
            ["Could not upgrade a to 1. why", "Could not upgrade b to 2. why"],
        ),
        (["downgrade", "--feature", "a=1", "--dry-run"], ["Can not downgrade a to 1. why"]),
        (["disable", "--feature", "a"], ["Could not disable a. why"]),
    ],
)
def test_a_refused_change_fails_for_every_feature(
    broker: FakeBroker, capsys: Captured, arguments: list[str], lines: list[str]
) -> None:
    """The lines are on stdout, the count of failures on stderr, and the exit status is 1."""
    refusal = UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="why")
    broker.answers[ApiKey.UPDATE_FEATURES] = lambda _: refusal
    assert features(broker, *arguments) == 1
    captured = capsys.readouterr()
    assert captured.out.splitlines() == lines
    assert captured.err == f"{len(lines)} out of {len(lines)} operation(s) failed.\n"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["upgrade"], "You must specify at least one feature to upgrade"),
        (["disable"], "You must specify at least one feature to disable"),
        (["upgrade", "--feature", "a"], "Can't parse feature=level string a: equals sign not found."),
        (["upgrade", "--feature", "a=x"], "Can't parse feature=level string a=x: unable to parse x as a short."),
        (["upgrade", "--feature", "a=1", "--feature", "a=2"], "Feature a was specified more than once."),
        (
            ["upgrade", "--release-version", "3.9", "--feature", "a=1"],
            "Can not specify `release-version` with other feature flags.",
        ),
        (["downgrade", "--release-version", "1.0"], "Unknown metadata.version 1.0. Supported metadata.version are 3.3-IV0,"),
    ],
)
def test_a_wrong_command_line_sends_nothing(broker: FakeBroker, capsys: Captured, arguments: list[str], text: str) -> None:
    """The error is one line with Kafka's text."""
    assert features(broker, *arguments) == 1
    assert capsys.readouterr().err.startswith(text)
    assert broker.requests == []


def test_describe_lists_the_supported_features(broker: FakeBroker, capsys: Captured) -> None:
    """The columns are Kafka's. A feature that is not finalized has level 0, whose name metadata.version does not know."""
    assert features(broker, "describe") == 0
    assert capsys.readouterr().out.splitlines() == []
    broker.features = ApiVersionsResponse(
        supported_features=[
            SupportedFeatureKey(name="metadata.version", min_version=1, max_version=22),
            SupportedFeatureKey(name="kraft.version", min_version=0, max_version=0),
        ],
        finalized_features=[FinalizedFeatureKey(name="metadata.version", max_version_level=21, min_version_level=21)],
        finalized_features_epoch=47,
    )
    assert features(broker, "describe", "--node-id", "1") == 0
    assert capsys.readouterr().out.splitlines() == [
        "Feature: kraft.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 0\tFinalizedVersionLevel: 0\tEpoch: 47",
        "Feature: metadata.version\tSupportedMinVersion: 3.0-IV1\tSupportedMaxVersion: 4.0-IV0\t"
        "FinalizedVersionLevel: 3.9-IV0\tEpoch: 47",
    ]


def test_features_that_the_node_does_not_know() -> None:
    """A node that has not read the metadata log reports epoch -1, for which there is no epoch."""
    assert feature_metadata(ApiVersionsResponse()).finalized_epoch is None


def test_what_needs_no_cluster(capsys: Captured) -> None:
    """These commands need no server. All others do."""
    assert main(["version-mapping", "--release-version", "3.7-IV2"]) == 0
    assert main(["feature-dependencies", "--feature", "metadata.version=21"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "metadata.version=17 (3.7-IV2)",
        "kraft.version=0",
        "transaction.version=0",
        "metadata.version=21 (3.9-IV0) has no dependencies.",
    ]
    with pytest.raises(SystemExit) as ended:
        main(["describe"])
    assert ended.value.code == 1
