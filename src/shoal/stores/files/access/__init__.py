"""Access to files: directory handles, atomic replacement, appended lines and change notices."""
