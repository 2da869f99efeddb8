"""What people and programs see; they draw and translate."""
