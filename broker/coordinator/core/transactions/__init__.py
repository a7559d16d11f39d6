"""The transaction coordinator's decisions (core)."""
