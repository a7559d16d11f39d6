"""ApiVersions, the first request on a connection: which APIs and versions the server serves (KIP-35, KIP-584) (core).

The response always uses response header v0, whatever its own version. A client that sent a version too new for the server
can therefore read the refusal: a v0 response that holds only UNSUPPORTED_VERSION and the version list.
`finalized_features_epoch` -1 means that the node does not know the finalized features yet. A client that knows which node of
which cluster it wants to reach says so from version 5 on (KIP-1242).
"""

from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Int64, Kind, Struct, field, message, struct


@message(kind=Kind.REQUEST, api_key=ApiKey.API_VERSIONS, versions="0-5", flexible="3+")
class ApiVersionsRequest(Struct):
    client_software_name: str = field(default="", versions="3+", ignorable=True)
    client_software_version: str = field(default="", versions="3+", ignorable=True)
    cluster_id: str | None = field(default=None, versions="5+", nullable="5+", ignorable=True)
    node_id: Int32 = field(default=-1, versions="5+", ignorable=True)


@struct
class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


@struct
class SupportedFeatureKey(Struct):
    name: str = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


@struct
class FinalizedFeatureKey(Struct):
    name: str = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


@message(kind=Kind.RESPONSE, api_key=ApiKey.API_VERSIONS, versions="0-5", flexible="3+")
class ApiVersionsResponse(Struct):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = field(default_factory=list)
    throttle_time_ms: Int32 = field(default=0, versions="1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(default_factory=list, versions="3+", tag=0, ignorable=True)
    finalized_features_epoch: Int64 = field(default=-1, versions="3+", tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(default_factory=list, versions="3+", tag=2, ignorable=True)
    zk_migration_ready: bool = field(default=False, versions="3+", tag=3, ignorable=True)
