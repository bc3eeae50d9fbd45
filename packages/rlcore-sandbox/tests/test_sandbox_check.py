"""The check ``sandbox`` of ``rlcore doctor``, and the choice of a run, with the sandboxes of this package."""

from __future__ import annotations

import pytest
from rlcore.plugins.registry import Registry
from rlcore.session.sandboxes import examine, ranked
from rlcore.testing import check_sandbox
from rlcore_sandbox.support import sandboxes


def test_the_doctor_states_what_each_sandbox_guarantees() -> None:
    findings = list(sandboxes())
    texts = [finding.text for finding in findings]
    choices = [examine(Registry(), spec.id) for spec in ranked(Registry())]
    for choice in choices:
        assert any(text.startswith(choice.spec.id) for text in texts)
    for choice in choices:
        assert choice.support.guarantees if choice.support.available else choice.support.reason
    assert sum("(auto)" in text for text in texts) == any(choice.support.available for choice in choices)
    assert all(finding.fix for finding in findings if finding.status != "ok")


def test_a_service_is_never_chosen_automatically() -> None:
    ids = [spec.id for spec in ranked(Registry())]
    assert ids == ["namespaces", "bubblewrap", "landlock"]
    assert "base_url" in examine(Registry(), "http").support.fix


@pytest.mark.slow
@pytest.mark.parametrize("id", ["namespaces", "bubblewrap", "landlock"])
def test_each_local_sandbox_keeps_the_contract(id: str) -> None:
    if reason := examine(Registry(), id).support.reason:
        pytest.skip(reason)
    check_sandbox(id)


@pytest.mark.parametrize("id", ["namespaces", "bubblewrap", "landlock"])
def test_an_unavailable_sandbox_has_a_reason_and_a_fix(id: str) -> None:
    support = examine(Registry(), id).support
    assert support.available == (not support.fix)
    assert support.available == bool(support.guarantees)
