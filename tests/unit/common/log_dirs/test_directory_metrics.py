"""The series that every directory of a node has, the metadata directory included."""

import errno

from common.environment.interface import LogDirError, SpaceStat
from common.ids import uuid_text
from common.log_dirs.directories import NodeDirectories
from common.log_dirs.directory_metrics import directory_samples
from common.log_dirs.log_directories import LogDirectories, LogDirectory, SpaceSeen
from tests.simulation.environment import SimulatedWorld
from tests.unit.common.metadata.builders import directory

D1, D2, META = directory(1), directory(2), directory(9)


def test_each_online_directory_has_its_series() -> None:
    """/d1 has failed, /d2 has not been measured yet, and the metadata directory is suspected. The errors of an offline
    directory stay."""
    env = SimulatedWorld(seed=1).node("n")
    ids = {"/d1": D1, "/d2": D2, "/m": META}
    known = LogDirectories(
        [LogDirectory(path=path, directory_id=id_) for path, id_ in ids.items()], data_dirs=["/d1", "/d2"], metadata_dir="/m"
    )
    known.step(SpaceSeen(D1, SpaceStat(total_bytes=1000, usable_bytes=10, free_inodes=5)))
    known.step(SpaceSeen(META, SpaceStat(total_bytes=1001, usable_bytes=11, free_inodes=5)))
    known.step(LogDirError("/d1", "append", errno.EIO))
    directories = NodeDirectories(
        cluster_id="c",
        known=known,
        log_dirs={id_: env.log_dir(path, operation_timeout_ns=10**9) for path, id_ in ids.items()},
        metadata_directory_id=META,
    )
    samples = list(directory_samples(directories, {META}, {("/d1", "append"): 1, ("/m", "fsync"): 0}))
    second = {"logDirectory": "/d2", "directoryId": uuid_text(D2)}
    metadata = {"logDirectory": "/m", "directoryId": uuid_text(META)}
    assert [(each.name.removeprefix("kafka_log_logdir_"), dict(each.labels), each.value) for each in samples] == [
        ("oldest_operation_age_seconds", second, 0),
        ("suspected", second, 0),
        ("total_bytes", metadata, 1001),
        ("usable_bytes", metadata, 11),
        ("oldest_operation_age_seconds", metadata, 0),
        ("suspected", metadata, 1),
        ("io_errors", {"logDirectory": "/d1", "op": "append"}, 1),
        ("io_errors", {"logDirectory": "/m", "op": "fsync"}, 0),
    ]
