"""DeleteTopics: deletes topics by name, from version 6 on by name or id (core).

Up to version 5 the names are in `topic_names`, from version 6 on in `topics`, so a handler must look at both. In a version 6
entry, either the name is null or the id is zero.
"""

from common.ids import ZERO_UUID, Uuid
from common.protocol.api_keys import ApiKey
from common.protocol.schema import Int16, Int32, Kind, Struct, field, message, struct


@struct
class DeleteTopicState(Struct):
    name: str | None = None
    topic_id: Uuid = ZERO_UUID


@message(kind=Kind.REQUEST, api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+")
class DeleteTopicsRequest(Struct):
    topics: list[DeleteTopicState] = field(default_factory=list, versions="6+")
    topic_names: list[str] = field(default_factory=list, versions="1-5", ignorable=True)
    timeout_ms: Int32 = 0


@struct
class DeletableTopicResult(Struct):
    name: str | None = field(default="", nullable="6+")
    topic_id: Uuid = field(default=ZERO_UUID, versions="6+", ignorable=True)
    error_code: Int16 = 0
    error_message: str | None = field(default=None, versions="5+", ignorable=True)


@message(kind=Kind.RESPONSE, api_key=ApiKey.DELETE_TOPICS, versions="1-6", flexible="4+")
class DeleteTopicsResponse(Struct):
    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult] = field(default_factory=list)
