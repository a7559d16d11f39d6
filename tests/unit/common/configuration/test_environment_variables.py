"""Tests the names of the environment variables that configure a node."""

from common.configuration.environment_variables import properties_from_environment


def test_environment_variables_follow_the_official_image() -> None:
    """In the variable names of the official Docker image, one underscore stands for a dot, two for an underscore and three
    for a dash. Variables that only the image's scripts use are skipped."""
    variables = {"KAFKA_LOG_DIRS": "/a", "KAFKA_X__Y___Z": "1", "KAFKA_HEAP_OPTS": "-Xmx1g", "HOME": "/"}
    assert properties_from_environment(variables) == {"log.dirs": "/a", "x_y-z": "1"}
