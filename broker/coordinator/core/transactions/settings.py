"""The settings of the transaction coordinator that its decisions depend on (core)."""

from dataclasses import dataclass

from common.configuration.server import ServerConfig


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    """Each field is the configuration key of the same name with dots for underscores. The defaults are Kafka's."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    batch_bytes_max: int = 1_048_588
    """From `max.message.bytes` of `__transaction_state`: what the tombstones of one step may come to as a batch, or the
    record of a transaction."""


def transaction_settings(config: ServerConfig, batch_bytes_max: int) -> TransactionSettings:
    """Derives the settings from server.properties."""
    return TransactionSettings(
        transaction_max_timeout_ms=config.transaction_max_timeout_ms,
        transactional_id_expiration_ms=config.transactional_id_expiration_ms,
        batch_bytes_max=batch_bytes_max,
    )
