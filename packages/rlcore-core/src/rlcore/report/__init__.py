"""Results as people read them: notes on turns for pages, tables for notebooks, and files of evaluations.

`rlcore_view` shows the turns with the notes that plugins give.
"""

from rlcore.report.notes import Mark, NotesOf, TurnNote, notes_of_plugins
from rlcore.report.results import new_folder, write_results

__all__ = ["Mark", "NotesOf", "TurnNote", "new_folder", "notes_of_plugins", "write_results"]
