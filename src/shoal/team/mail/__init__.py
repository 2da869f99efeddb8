"""Mail of a team: sent, authenticated, delivered and rendered."""
