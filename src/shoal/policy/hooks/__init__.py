"""Hook execution: matching hooks to events and running them."""
