"""The request handlers of the broker, one module per API (shell)."""
