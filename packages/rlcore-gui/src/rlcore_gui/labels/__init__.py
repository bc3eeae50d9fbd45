"""Labels of recorded steps by a teacher: progress, reasoning and history summaries, through chat-completions endpoints.

`rlcore_gui.labels.labelling` needs the extra ``label``.
"""

from rlcore_gui.labels.config import LabelTable, SourceLabelTable
from rlcore_gui.labels.prompt import StepLabels

__all__ = ["LabelTable", "SourceLabelTable", "StepLabels"]
