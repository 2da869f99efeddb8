"""Core types, ports and rules of Shoal: pure, without imports from its other packages."""
