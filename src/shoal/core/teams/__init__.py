"""Teams: rosters, tasks, mail and the ports that store them."""
