"""Sandboxes and their check, registered with the same hooks as those of any plugin."""

from __future__ import annotations

from rlcore.specs import CheckSpec, CommandSpec, SandboxSpec

rlcore_specs = [
    CheckSpec(id="sandbox", target="rlcore_sandbox.support:sandboxes", summary="Sandboxes for code of a model."),
    SandboxSpec(
        id="namespaces",
        target="rlcore_sandbox.local:NamespacesSandbox",
        summary="Each session has Linux namespaces of its own.",
        strength=100,
        available="rlcore_sandbox.support:namespaces",
    ),
    SandboxSpec(
        id="bubblewrap",
        target="rlcore_sandbox.local:BubblewrapSandbox",
        summary="Sessions share Linux namespaces that the program bubblewrap creates.",
        strength=75,
        available="rlcore_sandbox.support:bubblewrap",
    ),
    SandboxSpec(
        id="landlock",
        target="rlcore_sandbox.local:LandlockSandbox",
        summary="Sessions are restricted by landlock and a filter of system calls, without namespaces.",
        strength=50,
        available="rlcore_sandbox.support:landlock",
    ),
    SandboxSpec(
        id="http",
        target="rlcore_sandbox.fusion:HttpSandbox",
        config="rlcore_sandbox.config:HttpSandboxConfig",
        summary="Runs code at a service with the interface of SandboxFusion.",
        needs=("rlcore-sandbox[http]",),
        available="rlcore_sandbox.fusion:available",
    ),
    SandboxSpec(
        id="served",
        target="rlcore_sandbox.served:ServedSandbox",
        config="rlcore_sandbox.served:ServedSandboxConfig",
        summary="Runs code in the sandbox of another machine, which rlcore serve sandbox offers.",
        available="rlcore_sandbox.served:available",
    ),
    CommandSpec(
        id="serve sandbox",
        target="rlcore_sandbox.serving:serve_sandbox",
        summary="Offer a sandbox to runs on other machines.",
    ),
]
