"""The games of TextArena as environments."""
