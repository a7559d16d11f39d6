"""How each suite is run."""

from tests.interop.client_suites.suites import apache_kafka, go, librdkafka, python

SUITES = {
    suite.name: suite
    for suite in (
        *(python.KAFKA_PYTHON, python.AIOKAFKA),
        *(go.FRANZ_GO, go.SARAMA, go.KAFKA_GO),
        *(librdkafka.CLASSIC, librdkafka.CONSUMER, librdkafka.NO_AUTO_CREATE),
        *(apache_kafka.CLIENTS, apache_kafka.TOOLS, apache_kafka.REQUESTS, apache_kafka.SERVER),
        *(apache_kafka.CORE, apache_kafka.STREAMS),
    )
}
