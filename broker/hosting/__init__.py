"""The replicas of this broker on its log directories: their logs, fetchers and upkeep (shell)."""
