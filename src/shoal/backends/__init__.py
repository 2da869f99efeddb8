"""Where things run: processes, their guardian, and the fork server of teammates' processes."""
