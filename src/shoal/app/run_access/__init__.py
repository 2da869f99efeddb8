"""Access to runs from other processes: watch, control and stop them."""
