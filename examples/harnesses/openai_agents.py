"""A calculator agent with the OpenAI Agents SDK."""

from agents import Agent, MaxTurnsExceeded, ModelBehaviorError, Runner, function_tool
from calculator import calculator, right

agent = Agent(name="calculator", tools=[function_tool(calculator)], model="policy")


async def solve(task, policy):
    """Return 1 for the right answer, and 0 otherwise."""
    try:
        result = await Runner.run(agent, task.text, max_turns=4)
    except (MaxTurnsExceeded, ModelBehaviorError):  # such as a call of an unknown tool
        return 0.0
    return right(result.final_output, task)
