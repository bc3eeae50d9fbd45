"""Results as people read them: notes on turns for pages, tables for notebooks, and files of evaluations.

`rlcore_view` shows the turns with the notes that plugins give.
"""

from rlcore.report.notes import Cell, Film, Mark, Picture, Table, TurnNote
from rlcore.report.plugin_notes import Notes, NotesOf, notes_of_plugins
from rlcore.report.results import new_folder, write_results

__all__ = [
    "Cell",
    "Film",
    "Mark",
    "Notes",
    "NotesOf",
    "Picture",
    "Table",
    "TurnNote",
    "new_folder",
    "notes_of_plugins",
    "write_results",
]
