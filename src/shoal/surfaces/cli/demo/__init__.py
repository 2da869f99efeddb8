"""`shoal demo`: a team, or three agents, repair a small project on the screen, offline."""
