"""The broker's link to the controller: lifecycle, assignments, ISR changes, metadata, forwarding (shell)."""
