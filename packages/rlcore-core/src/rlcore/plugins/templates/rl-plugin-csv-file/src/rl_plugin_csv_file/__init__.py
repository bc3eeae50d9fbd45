"""A tracker that writes a CSV file."""
