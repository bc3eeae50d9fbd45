"""Questions about a warehouse, answered with a look-up."""
