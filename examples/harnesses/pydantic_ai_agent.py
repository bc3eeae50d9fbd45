"""A calculator agent with pydantic-ai."""

from calculator import calculator, right
from pydantic_ai import Agent, UnexpectedModelBehavior, UsageLimitExceeded, UsageLimits

agent = Agent("openai-chat:policy", tools=[calculator])


async def solve(task, policy):
    """Return 1 for the right answer, and 0 otherwise."""
    try:
        result = await agent.run(task.text, usage_limits=UsageLimits(request_limit=4))
    except (UnexpectedModelBehavior, UsageLimitExceeded):  # such as repeated calls with wrong arguments
        return 0.0
    return right(result.output, task)
