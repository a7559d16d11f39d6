"""Groups of the consumer protocol (KIP-848): the coordinator assigns, and reconciles each member on its own (core)."""
