"""Finds the published source of a client's test suite. Nothing of it is kept in this repository.

kafka-python's source distribution holds its tests, so pip downloads it, of the same version as the installed client. That of
aiokafka does not: AIOKAFKA_SOURCE names a folder with a checkout of its repository at the installed version. librdkafka's
tests are in a package for Node.js, the only one of a registry that has them for a recent version.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.interop.client_suites.runner import NoSource
from tests.interop.downloads import alone_with
from tests.interop.our_tools import ROOT

FOLDER = ROOT / "build" / "client-suites"
DOWNLOAD_SECONDS_MAX = 120
LIBRDKAFKA_PACKAGE = "@confluentinc/kafka-javascript@1.10.1"
LIBRDKAFKA_VERSION = "2.15.1"


def kafka_python() -> Path:
    """Returns the folder of kafka-python's source distribution, downloaded if needed. Raises NoSource."""
    wanted = version("kafka-python")
    folder = FOLDER / f"kafka_python-{wanted}"
    with alone_with(folder):
        if not folder.is_dir():
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
            command = [*pip, "--no-binary", "kafka-python", f"kafka-python=={wanted}", "--dest"]
            _download(f"kafka-python {wanted}", command, folder.name, folder)
    if not (folder / "test" / "integration").is_dir():
        raise NoSource(f"{folder} holds no test/integration")
    return folder


def aiokafka() -> Path:
    """Returns the folder that AIOKAFKA_SOURCE names. Raises NoSource, also if it is of another version."""
    wanted = version("aiokafka")
    named = os.environ.get("AIOKAFKA_SOURCE")
    if not named:
        raise NoSource(
            f"aiokafka publishes its tests in its repository only; set AIOKAFKA_SOURCE to a checkout of v{wanted}"
        )
    folder = Path(named).absolute()
    try:
        is_wanted = f'__version__ = "{wanted}"' in (folder / "aiokafka" / "__init__.py").read_text()
    except OSError as error:
        raise NoSource(f"AIOKAFKA_SOURCE is no checkout of aiokafka: {error.filename}: {error.strerror}") from error
    if not is_wanted:
        raise NoSource(f"{folder} is not aiokafka {wanted}, which is installed")
    return folder


def librdkafka() -> Path:
    """Returns the folder with librdkafka's source, downloaded if needed. Raises NoSource."""
    folder = FOLDER / f"librdkafka-{LIBRDKAFKA_VERSION}"
    with alone_with(folder):
        if not folder.is_dir():
            npm = shutil.which("npm")
            if npm is None:
                raise NoSource("npm is missing (Debian: apt install npm)")
            pack = [npm, "pack", "--silent", LIBRDKAFKA_PACKAGE, "--pack-destination"]
            _download(LIBRDKAFKA_PACKAGE, pack, "package/deps/librdkafka", folder)
    return folder


def _download(package: str, command: Sequence[str], inside: str, folder: Path) -> None:
    """Runs a command that puts an archive into the folder with which its arguments end, and keeps what the archive has
    `inside`. A failed download leaves no files."""
    unfinished = FOLDER / f"unfinished-{os.getpid()}"
    unfinished.mkdir(parents=True)
    try:
        done = subprocess.run(
            [*command, str(unfinished)], capture_output=True, text=True, timeout=DOWNLOAD_SECONDS_MAX, check=False
        )
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines()
            raise NoSource(f"{package} cannot be downloaded: {lines[-1] if lines else done.returncode}")
        (archive,) = unfinished.iterdir()
        # tarfile's filters came with Python 3.11.4.
        shutil.unpack_archive(archive, unfinished, format="gztar")
        (unfinished / inside).rename(folder)
    except subprocess.TimeoutExpired:
        raise NoSource(f"the download of {package} took longer than {DOWNLOAD_SECONDS_MAX} s") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
