"""The simulation of the bundled tasks: arms, scene, cameras, and the meaning of actions."""
