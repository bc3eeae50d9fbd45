"""Components of an episode: calls, tools, rewards and summaries."""
