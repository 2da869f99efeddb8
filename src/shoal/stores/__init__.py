"""Where the record is kept."""
