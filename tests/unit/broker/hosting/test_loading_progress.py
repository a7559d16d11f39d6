"""A broker that loads its logs shows how far it has got."""

from broker.hosting.loading_progress import REPORT_INTERVAL_NS, LoadingProgress
from tests.simulation.environment import SimulatedWorld
from tests.unit.broker.cluster import Cluster, path, run

INTERVAL_SECONDS = REPORT_INTERVAL_NS / 1e9
LOGS = 60


def test_each_directory_reports_until_it_is_done() -> None:
    async def scenario(world: SimulatedWorld) -> None:
        progress = LoadingProgress(world.node("broker-1"))
        assert progress.remaining_logs() == {}
        first, second = progress.begin("/d1"), progress.begin("/d2")
        first.remaining_logs, first.folder = 7, "t-0"
        second.remaining_logs, second.folder = 3, "u-0"
        await world.sleep(1.5 * INTERVAL_SECONDS)
        assert progress.remaining_logs() == {"/d1": 7, "/d2": 3}
        progress.end(first)
        second.remaining_logs, second.folder = 2, "u-1"
        await world.sleep(INTERVAL_SECONDS)
        progress.end(second)
        assert progress.remaining_logs() == {}
        await world.sleep(2 * INTERVAL_SECONDS)
        assert [event.fields for event in world.events_named("logs_loading")] == [
            {"log_dir": "/d1", "remaining_logs": 7, "folder": "t-0"},
            {"log_dir": "/d2", "remaining_logs": 3, "folder": "u-0"},
            {"log_dir": "/d2", "remaining_logs": 2, "folder": "u-1"},
        ]

    SimulatedWorld(1).run(scenario)


def test_a_start_on_a_slow_disk_reports_what_is_left() -> None:
    """Fewer logs are left with every report. Nothing is reported once the broker serves."""

    async def scenario(cluster: Cluster) -> None:
        await cluster.start(1)
        cluster.controller.create_topic(*[[1]] * LOGS)
        for index in range(LOGS):
            await cluster.started(index)
        cluster.crash(1)
        cluster.world.disk(path(1, "a")).slow_down(400)
        await cluster.start(1)
        reports = cluster.world.events_named("logs_loading")
        left = [event.fields["remaining_logs"] for event in reports]
        assert len(left) > 2
        assert left[0] <= LOGS and left == sorted(left, reverse=True) and left[-1] > 0
        assert all(event.fields["folder"].startswith("t-") for event in reports)
        assert cluster[1].replicas.loading_progress.remaining_logs() == {}
        await cluster.world.sleep(2 * INTERVAL_SECONDS)
        assert cluster.world.events_named("logs_loading") == reports

    run(scenario)
