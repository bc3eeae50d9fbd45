"""SmolVLA of LeRobot."""
