"""Why a run does not learn: rules over its metrics and its stored rollouts."""
