"""The warning of the JVM that is kept away from the user. A shell stands for the JVM: no Java and no Spark is needed."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
CODE = """
import subprocess, sys, threading
from analytics.quiet_launch import without_incubator_warning

jvm = "echo 'WARNING: Using incubator modules: jdk.incubator.vector' >&2; echo first >&2; read line; echo $line >&2"
with without_incubator_warning():
    process = subprocess.Popen(["sh", "-c", jvm], stdin=subprocess.PIPE, text=True)
# In one write: where PYTHONUNBUFFERED is set, print writes the end of the line by itself, and "first" can come before it.
sys.stderr.write("ours\\n")
process.communicate("last")
for thread in threading.enumerate():
    if thread is not threading.current_thread():
        thread.join()
"""


@pytest.mark.slow
def test_only_the_warning_is_dropped() -> None:
    """What the process prints after the block is passed on too, and our own stderr is the terminal again."""
    done = subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30)
    assert sorted(done.stderr.splitlines()) == ["first", "last", "ours"]
