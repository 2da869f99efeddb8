"""Core types, ports and rules of Shoal: pure, without imports from other packages of it."""
