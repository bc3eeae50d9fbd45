"""World models and explorers in three phases: a world model, an explorer, and the two against each other."""
