"""The data types exchanged between environments, tools, rewards, engines and trainers.

All types are immutable, and support pickle, ``copy.deepcopy`` and JSON (`to_json`, `from_json`).
"""

from rlcore.types.arrays import FrozenArray, Logprobs, LossMask, NumberArray, TokenIds
from rlcore.types.codec import from_json, to_json
from rlcore.types.frozen import FrozenDict, freeze, thaw
from rlcore.types.generation import (
    ChatCompletion,
    Completion,
    FinishReason,
    MediaSpan,
    Prompt,
    Response,
    Sampling,
    VersionSpan,
)
from rlcore.types.messages import (
    ImagePart,
    JsonSchema,
    Message,
    Part,
    Role,
    TextPart,
    ToolCall,
    ToolSchema,
    media_hash,
)
from rlcore.types.requests import RolloutKey, RolloutRequest, derive_seed
from rlcore.types.sandbox import CodeResult, SandboxLimits, SandboxSupport
from rlcore.types.steps import Boundary, Failure, Observation, Step, Stop
from rlcore.types.tasks import Demonstration, Preference, RecordedEpisode, Task
from rlcore.types.trajectory import Group, RewardResult, Segment, Timing, Trajectory, Turn

__all__ = [
    "Boundary",
    "ChatCompletion",
    "CodeResult",
    "Completion",
    "Demonstration",
    "Failure",
    "FinishReason",
    "FrozenArray",
    "FrozenDict",
    "Group",
    "ImagePart",
    "JsonSchema",
    "Logprobs",
    "LossMask",
    "MediaSpan",
    "Message",
    "NumberArray",
    "Observation",
    "Part",
    "Preference",
    "Prompt",
    "RecordedEpisode",
    "Response",
    "RewardResult",
    "Role",
    "RolloutKey",
    "RolloutRequest",
    "Sampling",
    "SandboxLimits",
    "SandboxSupport",
    "Segment",
    "Step",
    "Stop",
    "Task",
    "TextPart",
    "Timing",
    "TokenIds",
    "ToolCall",
    "ToolSchema",
    "Trajectory",
    "Turn",
    "VersionSpan",
    "derive_seed",
    "freeze",
    "from_json",
    "media_hash",
    "thaw",
    "to_json",
]
