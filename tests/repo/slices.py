"""Slices of the long tests, of about equal duration."""

from __future__ import annotations

from collections.abc import Iterable

SECONDS = {
    "test_fuzz.py": 460,
    "test_memory_estimates.py": 460,
    "test_several_processes.py": 700,
    "test_smoke.py": 430,
    "test_ray_sampler.py": 450,
    "test_gui_learns.py": 340,
    "test_docs.py": 330,
    "test_visual_search_learns.py": 280,
    "test_signals.py": 250,
    "test_install.py": 265,
    "test_vllm_engine.py": 260,
    "test_cluster_example.py": 300,
    "test_ray_streaming.py": 250,
    "test_sharded_update.py": 135,
    "test_miniwob_learns.py": 100,
    "test_serve_command.py": 90,
    "test_cut_link.py": 60,
    "test_algorithms_train.py": 55,
    "test_gsm8k_learns.py": 240,
    "test_harness_learns.py": 240,
    "test_harnesses.py": 240,
    "test_real_model.py": 220,
    "test_diagnosis.py": 180,
    "test_visual_cot_learns.py": 170,
    "test_third_party.py": 60,
    "test_plugins_new.py": 360,
    "test_adapters_learn.py": 160,
    "test_vllm_learns.py": 160,
    "test_installation.py": 150,
    "test_any_model.py": 150,
    "test_visual_search_supervised.py": 150,
    "test_killed.py": 140,
    "test_sft_then_grpo.py": 140,
    "test_visual_search_photos.py": 140,
    "test_robotwin_learns.py": 140,
    "test_gui_real_steps.py": 130,
    "test_real_model_transfer.py": 130,
    "test_vllm_images.py": 130,
    "test_sampling_ahead.py": 110,
    "test_ray_ranks.py": 120,
    "test_phases_learn.py": 90,
    "test_gpu_page.py": 60,
    "test_sandbox_attacks.py": 200,
    "test_vllm_adapter.py": 70,
    "test_visual_cot.py": 70,
    "test_algorithms_in_a_run.py": 60,
    "test_lora.py": 50,
    "test_openenv.py": 50,
    "test_evaluate_an_endpoint.py": 50,
    "test_visual_search.py": 40,
    "test_view.py": 50,
    "test_trackers.py": 40,
    "test_visual_search_slurm.py": 40,
    "test_control.py": 40,
    "test_gguf_real.py": 40,
    "test_notebook.py": 30,
    "test_fsdp.py": 30,
    "test_damaged_files.py": 30,
    "test_plugin_calls.py": 30,
    "test_gguf_bad_input.py": 25,
    "test_secrets.py": 20,
    "test_processes.py": 20,
}
"""Duration of the longest test files. They start first, so that no worker is left with a long test at the end, and the
slices are balanced with them."""
OTHERS = 5
"""Seconds of a file that is not listed."""
PACKAGES = 400
"""Seconds of one worker that the tests of each package alone take, which `.ci/run` adds to the first slice."""


def slices(names: Iterable[str], count: int) -> list[set[str]]:
    """Distribute files over slices of about equal duration."""
    found: list[set[str]] = [set() for _ in range(count)]
    loads = [PACKAGES, *[0] * (count - 1)]
    for name in sorted(names, key=lambda name: (-SECONDS.get(name, OTHERS), name)):
        least = loads.index(min(loads))
        found[least].add(name)
        loads[least] += SECONDS.get(name, OTHERS)
    return found
