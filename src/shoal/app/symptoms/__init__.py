"""Why something does not work as expected: each symptom is looked into, and answered with what to do."""
