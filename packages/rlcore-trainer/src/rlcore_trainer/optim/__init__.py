"""Objectives and optimiser updates."""
