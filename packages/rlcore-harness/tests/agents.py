"""Agents of the tests, as users write them. They run in processes of their own."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

EPISODES = 0


def ask(text, **options):
    """The text of an answer; the address and the key are those of the variables."""
    body = {"model": "policy", "messages": [{"role": "user", "content": text}], **options}
    headers = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "Content-Type": "application/json"}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def counts(task, policy):
    """Its reward is the number of episodes in this process, if it is asked in the right folder."""
    global EPISODES
    EPISODES += 1
    assert os.listdir(".") == []
    assert ask(task.text, temperature=0.25) == "yes"
    return EPISODES


async def waits(task, policy):
    """The number of episodes whose event loop this process has seen."""
    await asyncio.to_thread(ask, task.text)
    return counts(task, policy)


def reports(task, policy):
    try:
        ask(task.text, logprobs=True)
    except urllib.error.HTTPError:
        ask(task.text)
    policy.reward(0.5)


def asks_on(task, policy):
    while True:
        ask(task.text)


def raises(task, policy):
    print("the output before")
    raise ValueError("no luck")


def ends(task, policy):
    print("the output before")
    os.kill(os.getpid(), signal.SIGKILL)


def exits(task, policy):
    sys.exit(3)


def returns_text(task, policy):
    return "good"


def forks(task, policy):
    if os.fork() == 0:
        return 100
    time.sleep(0.3)
    return counts(task, policy)


def leaves_thread(task, policy):
    threading.Thread(target=time.sleep, args=(600,), name="late", daemon=True).start()
    return counts(task, policy)


def leaves_process(task, policy):
    subprocess.Popen(["sleep", str(600 + task.fields["number"])])
    return counts(task, policy)


def leaves_daemon(task, policy):
    subprocess.run(f"setsid sleep {600 + task.fields['number']} > /dev/null 2>&1 &", shell=True, check=True)
    return counts(task, policy)


def hangs(task, policy):
    subprocess.Popen(["sleep", str(600 + task.fields["number"])])
    while True:
        print("x" * 1000)


def program():
    """The program of a command: its exit status is the answer."""
    with open(sys.argv[1], encoding="utf-8") as file:
        task = json.load(file)
    assert sys.argv[1] == os.environ["RLCORE_TASK"]
    print("the output before")
    sys.stdout.flush()
    answer = ask(task["messages"][0]["content"])
    if answer == "wait":
        subprocess.run(["sleep", str(600 + task["fields"]["number"])], check=False)
    if answer == "die":
        os.abort()
    sys.exit(int(answer))


if __name__ == "__main__":
    program()
