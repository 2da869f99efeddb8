"""Types and their JSON: the only room where a mapping becomes a type."""
