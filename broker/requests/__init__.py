"""One module per API that the broker answers (shell)."""
