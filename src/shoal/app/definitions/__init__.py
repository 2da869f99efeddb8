"""What files and plug-ins bring: agents, instructions, and whether their programs are trusted."""
