"""DescribeUserScramCredentials: mechanisms and iterations of users, never their credentials."""

from broker.requests.describe_user_scram_credentials import DescribeUserScramCredentialsRequests
from common.protocol.api_keys import ApiKey
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from common.records.metadata_records import (
    KnownRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from tests.unit.broker.requests.contexts import context, over_the_wire
from tests.unit.common.metadata.builders import replay

SHA_256, SHA_512 = 1, 2
CREDENTIALS: tuple[KnownRecord, ...] = (
    UserScramCredentialRecord(name="u", mechanism=SHA_512, salt=b"s", stored_key=b"k", iterations=8192),
    UserScramCredentialRecord(name="u", mechanism=SHA_256, salt=b"s", stored_key=b"k", iterations=4096),
    UserScramCredentialRecord(name="a", mechanism=SHA_256, iterations=5000),
    UserScramCredentialRecord(name="gone", mechanism=SHA_256),
    RemoveUserScramCredentialRecord(name="gone", mechanism=SHA_256),
)


def ask(users: list[str] | None) -> list[tuple[str, int, list[tuple[int, int]]]]:
    """Returns name, error, and the mechanisms with their iterations of each user."""
    request = DescribeUserScramCredentialsRequest(users=None if users is None else [UserName(name=name) for name in users])
    assert over_the_wire(request, 0) == request
    requests = DescribeUserScramCredentialsRequests(replay(*CREDENTIALS))
    response = over_the_wire(requests.handle(context(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0), request), 0)
    assert isinstance(response, DescribeUserScramCredentialsResponse)
    assert (response.error_code, response.error_message) == (ErrorCode.NONE, None)
    assert all((result.error_message is None) == (result.error_code == ErrorCode.NONE) for result in response.results)
    return [
        (result.user, result.error_code, [(info.mechanism, info.iterations) for info in result.credential_infos])
        for result in response.results
    ]


A, U = ("a", 0, [(SHA_256, 5000)]), ("u", 0, [(SHA_256, 4096), (SHA_512, 8192)])


def test_all_users_or_the_named_ones() -> None:
    """Null and an empty list ask for all users. They are sorted, as are the mechanisms."""
    assert ask(None) == ask([]) == [A, U]
    assert ask(["u"]) == [U]


def test_each_user_has_its_own_error() -> None:
    """A user without a credential, perhaps because it was removed, and a user that is named twice."""
    assert ask(["gone", "u", "a", "u"]) == [
        ("gone", ErrorCode.RESOURCE_NOT_FOUND, []),
        ("u", ErrorCode.DUPLICATE_RESOURCE, []),
        A,
    ]
