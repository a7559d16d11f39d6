"""What the export and the reports need beyond Diskraft itself, and whether it is there (shell).

Run as a module it prints what is missing, one line each, and exits 1 if anything is: `make test` asks it what was skipped.
Easy to get wrong: Spark's launcher prefers JAVA_HOME to the PATH, so that the same Java has to be asked here.
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
_INSTALL = "pip install 'diskraft[analytics]', in a clone: make analytics"
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def missing_package(name: str) -> str | None:
    """A line about a package that cannot be imported; None if it is there."""
    return None if find_spec(name) is not None else f"the package {name} is missing; install it with: {_INSTALL}"


def missing_java() -> str | None:
    """A line about a Java that is absent or too old; None if there is one that Spark can use."""
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
    """Everything that is missing for the export and the reports."""
    found = (missing_package("pyarrow"), missing_package("pyspark"), missing_java())
    return [line for line in found if line is not None]


def require_export() -> None:
    """Raises AnalyticsError if Parquet files cannot be written."""
    _raise("diskraft metadata export", missing_package("pyarrow"))


def require_reports() -> None:
    """Raises AnalyticsError if Spark cannot run."""
    # Asking Java takes a moment; where the package is missing nobody needs the answer.
    _raise("diskraft reports", missing_package("pyspark") or missing_java())


def _raise(command: str, line: str | None) -> None:
    if line is not None:
        raise AnalyticsError(f"{command}: {line}")


if __name__ == "__main__":
    lines = missing()
    for each in lines:
        print(each)
    sys.exit(1 if lines else 0)
