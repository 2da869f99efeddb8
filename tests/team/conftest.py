"""What the tests of teams share."""
