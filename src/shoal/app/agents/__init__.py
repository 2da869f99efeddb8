"""How the agents of a session are made and led: their orders, outfits and seats, and where teammates run."""
