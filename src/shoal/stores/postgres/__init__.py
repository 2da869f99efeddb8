"""Store on PostgreSQL, for sessions and teams on several machines."""
