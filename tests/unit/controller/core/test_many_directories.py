"""Brokers with very many directories. A registration may name tens of thousands, so the controller's work must be linear in
their number, not quadratic. The tests count comparisons of ids."""

from collections.abc import Sequence

from common.ids import BrokerId, Uuid
from common.protocol.errors import ErrorCode
from common.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from common.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse, Feature
from controller.core.heartbeat import handle_broker_heartbeat
from controller.core.registration import handle_broker_registration
from tests.unit.controller.core.context import CAUGHT_UP, CLUSTER_ID, ControllerContext

COUNT = 400
COMPARISONS_MAX = 10 * COUNT


class CountedId(bytes):
    """A directory id that counts comparisons."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedId.comparisons += 1
        return bytes.__eq__(self, other)

    __hash__ = bytes.__hash__


def ids(first: int, count: int) -> list[Uuid]:
    """Makes new objects each time, like every request does, so that no comparison is skipped by identity."""
    return [Uuid(CountedId(number.to_bytes(16, "big"))) for number in range(first, first + count)]


def context() -> ControllerContext:
    controller = ControllerContext()
    # The invariant checks make many comparisons themselves.
    controller.check_invariants = lambda: None  # type: ignore[method-assign]
    CountedId.comparisons = 0
    return controller


def register(controller: ControllerContext, broker_id: int, log_dirs: Sequence[Uuid]) -> BrokerRegistrationResponse:
    request = BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER_ID,
        incarnation_id=Uuid(bytes([broker_id]) * 16),
        features=[
            Feature(name=name, min_supported_version=level, max_supported_version=level)
            for name, level in controller.state.features.items()
        ],
        log_dirs=list(log_dirs),
    )
    return controller.apply(handle_broker_registration(controller.turn(), request))


def heartbeat(controller: ControllerContext, broker_id: int, offline: Sequence[Uuid]) -> BrokerHeartbeatResponse:
    request = BrokerHeartbeatRequest(
        broker_id=broker_id,
        broker_epoch=controller.epoch(broker_id),
        current_metadata_offset=CAUGHT_UP,
        offline_log_dirs=list(offline),
    )
    return controller.apply(handle_broker_heartbeat(controller.turn(), request))


def test_a_registration_beside_a_broker_with_many_directories() -> None:
    """The controller checks with one look-up per directory that no other broker owns it."""
    controller = context()
    register(controller, 1, ids(1_000, COUNT))
    register(controller, 2, ids(1_000 + COUNT, COUNT))
    assert CountedId.comparisons < COMPARISONS_MAX


def test_a_registration_that_leaves_many_directories_out() -> None:
    """The same incarnation registers again with half of its directories, then once more with all."""
    controller = context()
    register(controller, 1, ids(1_000, COUNT))
    register(controller, 1, ids(1_000, COUNT // 2))
    register(controller, 1, ids(1_000, COUNT))
    registration = controller.state.brokers[BrokerId(1)]
    assert (len(registration.directories), len(registration.lost_directories)) == (COUNT // 2, COUNT // 2)
    assert CountedId.comparisons < COMPARISONS_MAX


def test_a_heartbeat_that_reports_many_directories() -> None:
    """The first heartbeat reports half of the broker's directories as offline. The second reports the same half and many
    unknown ids."""
    controller = context()
    register(controller, 1, ids(1_000, COUNT))
    assert heartbeat(controller, 1, ids(1_000, COUNT // 2)).error_code == ErrorCode.NONE
    response = heartbeat(controller, 1, ids(1_000, COUNT // 2) + ids(5_000, COUNT))
    assert response.error_code == ErrorCode.LOG_DIR_NOT_FOUND
    registration = controller.state.brokers[BrokerId(1)]
    assert (len(registration.directories), len(registration.lost_directories)) == (COUNT // 2, COUNT // 2)
    assert CountedId.comparisons < COMPARISONS_MAX
