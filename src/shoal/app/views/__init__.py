"""What a session in a directory would have, looked at without starting one."""
