"""Reports on what a session in a directory would have, without starting one."""
