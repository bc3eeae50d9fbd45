"""Rewards that compare the final response with the expected answer: as text, as a number, or as AgentFly does."""
