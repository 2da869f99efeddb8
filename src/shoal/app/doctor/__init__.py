"""Why something does not work as expected: the facts, the symptoms and their causes, and what to do."""
