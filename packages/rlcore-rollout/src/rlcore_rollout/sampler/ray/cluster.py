"""The Ray cluster of a sampler, and whether it has room for the workers."""

from __future__ import annotations

from rlcore.runs.ray_cluster import RayCluster

from rlcore_rollout.sampler.ray.config import RaySamplerConfig, cluster_address


class SamplerCluster(RayCluster):
    """The cluster in which the workers of a sampler run.

    Args:
        config: the options of the sampler
        taken: number of places that the processes of this run take, which train

    Raises:
        UserError: the cluster has other versions or another token, or no room for the workers.
    """

    def __init__(self, config: RaySamplerConfig, taken: int = 0) -> None:
        super().__init__(cluster_address(config), "sampler.address", cores=config.workers * config.cpus)
        try:
            self.gpus = self._gpus() if config.gpus is None else config.gpus
            self.require_room(
                config.workers, "workers", "sampler.workers", cpus=config.cpus, gpus=self.gpus, taken=taken
            )
        except BaseException:
            self.close()
            raise

    def shortage(self, config: RaySamplerConfig) -> str | None:
        """Return a message if other work, such as another run, uses what the workers need."""
        cpus, gpus = config.workers * config.cpus, config.workers * self.gpus
        free = self.free()
        if cpus <= free[0] and gpus <= free[1]:
            return None
        needed = f"{config.workers} workers need CPU {cpus:g} and GPU {gpus:g}"
        return (
            f"note      other work uses {self.named}: {self.said_free()}, and {needed}. The run waits for them, at "
            f"most {config.start_timeout_s:g} s (sampler.start_timeout_s)"
        )

    def _gpus(self) -> float:
        return float(any(node["Resources"].get("GPU", 0) >= 1 for node in self.nodes))
