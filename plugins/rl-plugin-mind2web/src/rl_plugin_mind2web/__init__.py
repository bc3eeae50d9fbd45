"""Mind2Web: web pages for rlcore."""
