"""DescribeUserScramCredentials: which SCRAM mechanisms each user has a credential for (KIP-554) (core).

The response never has the credentials themselves. A null or empty list of users asks for all.
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int8, Int16, Int32, Kind, Struct, field, message, struct


@struct
class UserName(Struct):
    name: str = ""


@message(kind=Kind.REQUEST, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest(Struct):
    users: list[UserName] | None = field(default_factory=list)


@struct
class CredentialInfo(Struct):
    mechanism: Int8 = 0
    iterations: Int32 = 0


@struct
class DescribeUserScramCredentialsResult(Struct):
    user: str = ""
    error_code: Int16 = 0
    error_message: str | None = ""
    credential_infos: list[CredentialInfo] = field(default_factory=list)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse(Struct):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
    results: list[DescribeUserScramCredentialsResult] = field(default_factory=list)
