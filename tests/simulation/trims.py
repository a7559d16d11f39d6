"""An operator who deletes the records of topics from the front, and changes their segments and retention.

Shell of the tests. Of a *trimmed* topic only DeleteRecords deletes something, and it always names an offset, so that it is
known which records must be there. An *aging* topic also has its retention changed, and everything in it may go.
"""

import contextlib
import random
from typing import TYPE_CHECKING

from common.net.node_channel import ChannelError
from common.protocol.errors import ErrorCode
from common.protocol.messages.delete_records import (
    TO_HIGH_WATERMARK,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from common.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    ConfigOperation,
    IncrementalAlterConfigsRequest,
)
from common.records.metadata_records import ConfigResourceType
from tests.simulation.history import Outcome, RecordDeletion, is_aging

if TYPE_CHECKING:
    from tests.simulation.workload import WorkloadClient

ANSWER_SECONDS = 10
DELETION_TIMEOUT_MS = 5_000
# What the operator does: delete records, or else change a setting.
DELETION_SHARE = 0.6
ALL_SHARE = 0.3
SEGMENT_SETTINGS = (
    ("segment.bytes", ("3000", "30000", None)),
    ("segment.ms", ("500", "5000", None)),
    ("file.delete.delay.ms", ("0", "1000", None)),
)
RETENTION_SETTINGS = (
    ("retention.ms", ("200", "3000", None)),
    ("retention.bytes", ("0", "5000", None)),
)


class Trims:
    """What the operator does to these topics."""

    def __init__(self, client: "WorkloadClient", topics: list[str], partitions: int, seed: int) -> None:
        self._client = client
        self._topics = topics
        self._partitions = partitions
        self._rng = random.Random(f"{seed}/{client.name}/choices")

    async def change(self) -> None:
        """Deletes records of one partition, or changes one setting of a topic. The brokers may not answer."""
        topic = self._rng.choice(self._topics)
        if self._rng.random() < DELETION_SHARE:
            await self._delete(topic, self._rng.randrange(self._partitions))
        else:
            await self._set(topic)

    async def _delete(self, topic: str, index: int) -> None:
        if self._client.leader(topic, index) is None:
            await self._client.refresh(topic)
        latest = await self._client.latest_offset(topic, index)
        if latest is None or latest.outcome is not Outcome.OK:
            return
        offset = round(self._rng.random() * latest.offset)
        if is_aging(topic) and self._rng.random() < ALL_SHARE:
            offset = TO_HIGH_WATERMARK
        await delete_records(self._client, topic, index, offset)

    async def _set(self, topic: str) -> None:
        name, values = self._rng.choice(SEGMENT_SETTINGS + (RETENTION_SETTINGS if is_aging(topic) else ()))
        value = self._rng.choice(values)
        operation = ConfigOperation.DELETE if value is None else ConfigOperation.SET
        change = AlterableConfig(name=name, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=ConfigResourceType.TOPIC, resource_name=topic, configs=[change])
        request = IncrementalAlterConfigsRequest(resources=[resource])
        with contextlib.suppress(ChannelError):
            answer = await self._client.send(self._client._any_broker(), request, seconds=ANSWER_SECONDS)
            assert answer.responses[0].error_code != ErrorCode.INVALID_CONFIG, answer.responses[0].error_message


async def delete_records(client: "WorkloadClient", topic: str, index: int, offset: int) -> RecordDeletion | None:
    """Sends one DeleteRecords to the leader. Returns None if no leader is known."""
    known, leader = client.topics.get(topic), client.leader(topic, index)
    if known is None or leader is None:
        await client.refresh(topic)
        return None
    operation = RecordDeletion(
        client=client.name,
        begin_ns=client._env.now_ns(),
        topic=topic,
        topic_id=known.topic_id,
        index=index,
        offset=offset,
    )
    client.history.deletions.append(operation)
    wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=index, offset=offset)])
    request = DeleteRecordsRequest(topics=[wanted], timeout_ms=DELETION_TIMEOUT_MS)
    try:
        response = await client.send(leader, request, seconds=ANSWER_SECONDS)
    except ChannelError as error:
        operation.error = str(error)
        return operation
    finally:
        operation.end_ns = client._env.now_ns()
    result = response.topics[0].partitions[0]
    operation.error = ErrorCode(result.error_code).name
    if result.error_code == ErrorCode.NONE:
        operation.outcome = Outcome.OK
        operation.low_watermark = result.low_watermark
    else:
        await client.refresh(topic)
    return operation
