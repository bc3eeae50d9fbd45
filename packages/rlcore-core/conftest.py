"""The tests of the templates run in the packages that are made of them."""

collect_ignore = ["src"]
