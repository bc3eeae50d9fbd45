"""Where agent loops and rewards run."""
