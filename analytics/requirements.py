"""Checks for the packages and the Java version that the export and the reports need beyond Diskraft itself (shell).

Run as a module, it prints one line for each missing requirement and exits 1 if there are any; `make test` uses this to say
what it skipped. Spark's launcher prefers JAVA_HOME over the PATH, so the check does too.
"""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from analytics.errors import AnalyticsError

JAVA_VERSION_MIN = 17
_INSTALL = "make analytics, or pip install '.[analytics]', in a clone of Diskraft"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def missing_package(name: str) -> str | None:
    """Returns a one-line message for a package that cannot be imported, None if it is installed."""
    return None if find_spec(name) is not None else f"the package {name} is missing; install it with: {_INSTALL}"


def missing_java() -> str | None:
    """Returns a one-line message if Java is missing or too old, None if Spark can use it."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    way_out = "install it (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME"
    if java is None:
        return f"Java {JAVA_VERSION_MIN} or later is missing; {way_out}"
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"Java {JAVA_VERSION_MIN} or later is missing: {java} cannot be run ({error}); {way_out}"
    found = _VERSION.search(done.stderr + done.stdout)
    if done.returncode != 0 or found is None:
        return f"Java {JAVA_VERSION_MIN} or later is missing: {java} -version fails; {way_out}"
    if int(found[1]) < JAVA_VERSION_MIN:
        return f"Java {JAVA_VERSION_MIN} or later is missing: {java} is Java {found[1]}; {way_out}"
    return None


def missing() -> list[str]:
    """Returns a line for everything that the export and the reports lack."""
    found = (missing_package("pyarrow"), missing_package("pyspark"), missing_java())
    return [line for line in found if line is not None]


def require_export() -> None:
    """Raises AnalyticsError if Parquet files cannot be written."""
    _raise("diskraft metadata export", missing_package("pyarrow"))


def require_reports() -> None:
    """Raises AnalyticsError if Spark cannot run."""
    # Running Java takes a moment, so skip it if the package is missing anyway.
    _raise("diskraft reports", missing_package("pyspark") or missing_java())


def _raise(command: str, line: str | None) -> None:
    if line is not None:
        raise AnalyticsError(f"{command}: {line}")


if __name__ == "__main__":
    lines = missing()
    for each in lines:
        print(each)
    sys.exit(1 if lines else 0)
