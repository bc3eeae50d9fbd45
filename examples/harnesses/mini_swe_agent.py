"""A programmer with mini-swe-agent: it repairs a small repository with shell commands.

Its configuration confines it, because the policy writes the commands.
"""

import subprocess
import sys
from pathlib import Path

from minisweagent.agents.default import DefaultAgent
from minisweagent.environments.local import LocalEnvironment
from minisweagent.models.litellm_model import LitellmModel

SYSTEM = "You repair programs with shell commands."
ISSUE = """{{ task }}
Run tests with `python tests.py`. When they pass, run `echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT`."""

model = LitellmModel(model_name="openai/policy", cost_tracking="ignore_errors")


def solve(task, policy):
    """Return 1 if the tests of the repository pass in the end, and 0 otherwise."""
    folder = Path.cwd()  # a new folder for each episode
    for name, text in task.fields["files"].items():
        (folder / name).write_text(text)
    environment = LocalEnvironment(cwd=str(folder), timeout=10)
    agent = DefaultAgent(model, environment, system_template=SYSTEM, instance_template=ISSUE, step_limit=6)
    agent.run(task.text)
    (folder / "tests.py").write_text(task.fields["files"]["tests.py"])  # the agent may have changed it
    return float(subprocess.run([sys.executable, "tests.py"], timeout=10).returncode == 0)
