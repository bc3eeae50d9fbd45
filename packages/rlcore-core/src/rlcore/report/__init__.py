"""Picture sheets: stored trajectories as one HTML file with images, reasoning, answers and verdicts.

A sheet is self-contained and has no scripts. Everything in it that a model, a dataset or an environment wrote is
escaped, images are encoded again, and its content security policy forbids everything except its own style and images.
"""

from rlcore.report.notes import Mark, NotesOf, TurnNote, notes_of_plugins
from rlcore.report.page import Facts, has_images, sheet, write_sheet
from rlcore.report.results import new_folder, write_results

__all__ = [
    "Facts",
    "Mark",
    "NotesOf",
    "TurnNote",
    "has_images",
    "new_folder",
    "notes_of_plugins",
    "sheet",
    "write_results",
    "write_sheet",
]
