"""Tools that agents use."""
