"""Text for people: escaping, wording and the commands in it, and the only way to the terminal."""
