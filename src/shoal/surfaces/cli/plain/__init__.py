"""The terminal line by line: what scrolls by, the place to type, and questions put there."""
