"""A calculator agent with smolagents: it writes Python, which calls its tools.

smolagents writes the context anew before each step, so most steps are segments of their own.
"""

from calculator import calculator, right
from smolagents import CodeAgent, LogLevel, OpenAIModel, tool

SYSTEM = """Write Python between <code> and </code>. There are the functions
{%- for tool in tools.values() %}
{{ tool.to_code_prompt() }}
{%- endfor %}
Call final_answer(number) at the end."""

model = OpenAIModel("policy")
tools = [tool(calculator)]


def solve(task, policy):
    """Return 1 for the right answer, and 0 otherwise."""
    agent = CodeAgent(tools=tools, model=model, max_steps=3, verbosity_level=LogLevel.OFF)
    agent.prompt_templates["system_prompt"] = SYSTEM  # that of smolagents has thousands of tokens
    return right(agent.run(task.text), task)
