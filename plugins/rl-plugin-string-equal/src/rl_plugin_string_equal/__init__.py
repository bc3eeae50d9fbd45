"""Rewards that compare a final response with the expected answer: as text, as a number, or as the old system did."""
