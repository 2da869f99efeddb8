"""Process execution: guarded processes, the fork server for teammates, panes and sandboxes."""
