"""The controller daemon, which writes the metadata log. `core` makes the decisions, the shells around it carry them out."""
