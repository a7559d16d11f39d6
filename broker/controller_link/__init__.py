"""The broker's conversation with the controller: lifecycle, assignments, ISR changes, metadata, forwarding (shell)."""
