"""Run directories and the files in them."""
