"""Answers DescribeUserScramCredentials from the credentials that the metadata log sets (shell without I/O; KIP-554).

Counterpart of ScramImage.describe in Kafka. The credentials are kept but not used: listeners take no SASL. Only a log that
Apache Kafka wrote contains any. `kafka-configs --describe --entity-type users` asks for them, whether there are any or not.
"""

from collections import Counter
from typing import cast

from common.metadata.state import MetadataState
from common.net.request_context import RequestContext
from common.protocol.errors import ErrorCode
from common.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from common.records.metadata_records import MetadataRecordType, UserScramCredentialRecord


class DescribeUserScramCredentialsRequests:
    """Handles DescribeUserScramCredentials."""

    def __init__(self, state: MetadataState) -> None:
        self._state = state

    def handle(
        self, _context: RequestContext, request: DescribeUserScramCredentialsRequest
    ) -> DescribeUserScramCredentialsResponse:
        """Returns one result per user, with the mechanisms and their iterations. Each result has its own error."""
        known: dict[str, list[CredentialInfo]] = {}
        for record in self._state.kept_records.get(MetadataRecordType.USER_SCRAM_CREDENTIAL_RECORD, {}).values():
            credential = cast(UserScramCredentialRecord, record)
            info = CredentialInfo(mechanism=credential.mechanism, iterations=credential.iterations)
            known.setdefault(credential.name, []).append(info)
        asked = Counter(user.name for user in request.users) if request.users else Counter(sorted(known))
        return DescribeUserScramCredentialsResponse(
            error_message=None, results=[_result(user, count, known.get(user)) for user, count in asked.items()]
        )


def _result(user: str, count: int, credentials: list[CredentialInfo] | None) -> DescribeUserScramCredentialsResult:
    if count > 1:
        error, reason = ErrorCode.DUPLICATE_RESOURCE, "the request names the user more than once"
    elif credentials is None:
        error, reason = ErrorCode.RESOURCE_NOT_FOUND, "the user has no credential"
    else:
        credentials.sort(key=lambda info: info.mechanism)
        return DescribeUserScramCredentialsResult(user=user, error_message=None, credential_infos=credentials)
    return DescribeUserScramCredentialsResult(user=user, error_code=error, error_message=reason)
