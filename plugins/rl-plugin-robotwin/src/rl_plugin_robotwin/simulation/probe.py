"""Take one picture: ``python -m rl_plugin_robotwin.simulation.probe BACKEND DEVICE`` prints the name of the device.

A program of its own, because a driver that does not suffice can abort the process.
"""

from __future__ import annotations

import sys


def main(backend: str, device: str) -> str:
    """Draw a box. Returns the name of the device.

    Raises:
        RuntimeError: the picture is empty, or SAPIEN cannot draw.
    """
    from rl_plugin_robotwin.simulation.simulator import sapien

    scene = sapien.Scene([sapien.physx.PhysxCpuSystem(), sapien.render.RenderSystem(sapien.Device(device))])
    scene.set_ambient_light([1.0, 1.0, 1.0])
    builder = scene.create_actor_builder()
    material = sapien.render.RenderMaterial()
    material.base_color = [1.0, 0.0, 0.0, 1.0]
    builder.add_box_visual(half_size=[1.0, 1.0, 1.0], material=material)
    builder.set_initial_pose(sapien.Pose([3.0, 0.0, 0.0]))
    builder.build_static()
    sapien.render.set_camera_shader_dir(backend)
    camera = scene.add_camera("probe", 8, 8, 1.0, 0.01, 10.0)
    scene.update_render()
    camera.take_picture()
    if not camera.get_picture("Color")[4, 4, 0] > 0.05:
        raise RuntimeError("the picture is empty")
    names = [line.strip() for line in sapien.render.get_device_summary().splitlines() if line.strip()]
    return f"{device}: {'; '.join(names)}"[:300]


if __name__ == "__main__":
    print(main(*sys.argv[1:3]))
