"""ACT of LeRobot."""
