"""Trajectories as a recording of Rerun: messages, marked images, rewards, and the states and actions of control."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.errors import NotInstalledError
from rlcore.export.columns import columns, text
from rlcore.export.selection import Selected, Selection
from rlcore.images.encoding import image_size, open_image
from rlcore.plain_json import plain
from rlcore.plugins.loading import pip_line
from rlcore.plugins.registry import Registry
from rlcore.report import Mark, NotesOf, notes_of_plugins
from rlcore.types import Message, Segment, TextPart

APPLICATION = "rlcore"
MOST_NUMBERS = 256
"""Limit of the curves of an array. Larger rows are usually pictures of another form."""
QUALITY = 90
"""Of the JPEG of a camera picture."""
Color = tuple[int, int, int]
COLORS: Mapping[str, Color] = {"expected": (46, 160, 67), "given": (218, 54, 51)}
RADIUS = 0.02
"""Of a point, as a fraction of the width of its image."""


def write(selection: Selection, path: Path) -> None:
    """Write an entity for each trajectory.

    Raises:
        NotInstalledError: rerun-sdk is missing.
    """
    try:
        import rerun
    except ImportError:
        fix = pip_line(["rlcore-core[rerun]"])
        raise NotInstalledError("recordings need rerun-sdk", where="--format rrd", fix=fix) from None
    notes = notes_of_plugins(Registry())
    recording = rerun.RecordingStream(APPLICATION)
    recording.set_log_time_enabled(False)  # the time of the export says nothing about the run
    recording.set_log_tick_enabled(False)
    recording.save(path)
    recording.send_recording_name(plain((selection.run or selection.source).resolve().name))
    try:
        for one in selection:
            _Entity(rerun, recording, selection, one).log(notes)
            try:
                recording.flush()  # bounds the queue
            except RuntimeError as error:  # the thread that writes the file has stopped
                raise OSError(str(error)) from error
    finally:
        recording.disconnect()


class _Entity:
    """Writes a trajectory below its path, PURPOSE/STEP/GROUP/SIBLING."""

    def __init__(self, rerun: Any, recording: Any, selection: Selection, one: Selected) -> None:
        self._rerun, self._recording, self._selection, self._one = rerun, recording, selection, one
        purpose, _, step = one.record.rpartition("-")
        step = str(int(step)) if purpose and step.isdecimal() else ""
        carried = step and int(step) != one.row["step"]
        group = f"{one.row['step']}-{one.row['group']}" if carried else str(one.row["group"])
        self._root = [*((purpose, step) if step else (one.record,)), group, str(one.row["sibling"])]

    def log(self, notes: NotesOf) -> None:
        """Write all of it."""
        row = {name: value for name, value in columns(self._one).items() if value not in (None, "", [])}
        about = json.dumps(row, ensure_ascii=False, indent=1)
        self._put("about", self._rerun.TextDocument(about), static=True)
        trajectory = self._one.trajectory
        control = any(segment.arrays for segment in trajectory.segments)
        last = self._decisions() if control else self._turns(notes)
        self._recording.set_time("decision" if control else "turn", sequence=last)
        scored = {id: result.value for id, result in trajectory.rewards.items()} | {"total": trajectory.reward}
        for id, value in scored.items():
            if value is not None:
                self._put(f"rewards/{id}", self._rerun.Scalars(value))
        for id, result in trajectory.rewards.items():
            if said := result.text or result.error:
                self._put(f"judge/{id}", self._rerun.TextDocument(plain(said)), static=True)
        self._recording.reset_time()

    def _put(self, name: str, value: Any, *, static: bool = False) -> None:
        self._recording.log(self._path(name), value, static=static, strict=True)

    def _path(self, name: str) -> str:
        parts = [part or "-" for part in plain(name).split("/")]
        return str(self._rerun.new_entity_path([*self._root, *parts]))

    def _turns(self, notes: NotesOf) -> int:
        """The messages of each turn, at the index of the answer that follows; returns the last index."""
        noted = notes(self._one.task, self._one.trajectory, self._one.row["step"]).turns
        count = 0
        for turn in self._one.trajectory.turns:
            self._recording.set_time("turn", sequence=count)
            note = noted[count] if count < len(noted) else None
            if turn.kind == "observation":
                self._images(turn.messages, note.marks if note is not None else ())
            for message in turn.messages:
                self._put("messages", self._rerun.TextLog(_said(message), level=message.role))
            if turn.reward is not None:
                self._put("turn_reward", self._rerun.Scalars(turn.reward))
            count += turn.kind == "policy"
        return max(0, count - 1)

    def _images(self, messages: Sequence[Message], marks: Sequence[Mark]) -> None:
        import PIL.Image

        hashes = [sha256 for message in messages for sha256 in message.images]
        if hashes:
            self._put("images", self._rerun.Clear(recursive=True))
        for place, sha256 in enumerate(hashes):
            data = self._selection.image(sha256)
            if data is None:
                continue
            kind = PIL.Image.MIME[str(open_image(data).format)]
            self._put(f"images/{place}", self._rerun.EncodedImage(contents=data, media_type=kind))
            for name, color in COLORS.items() if place == len(hashes) - 1 else ():
                chosen = [mark for mark in marks if mark.kind == name]
                self._marks(f"images/{place}/{name}", chosen, color, *image_size(data))

    def _marks(self, name: str, marks: Sequence[Mark], color: Color, width: int, height: int) -> None:
        rerun = self._rerun
        boxes = [(mark.box, plain(mark.label)) for mark in marks if mark.box is not None]
        points = [(mark.point, plain(mark.label)) for mark in marks if mark.point is not None]
        if boxes:
            corners = [(x * width, y * height, right * width, low * height) for (x, y, right, low), _ in boxes]
            form, labels = rerun.Box2DFormat.XYXY, [label for _, label in boxes]
            self._put(f"{name}/boxes", rerun.Boxes2D(array=corners, array_format=form, labels=labels, colors=color))
        if points:
            places, labels = [(x * width, y * height) for (x, y), _ in points], [label for _, label in points]
            drawn = rerun.Points2D(places, labels=labels, colors=color, radii=RADIUS * width)
            self._put(f"{name}/points", drawn)

    def _decisions(self) -> int:
        """The arrays and the rewards of each decision; returns the last decision."""
        start = 0
        for segment in self._one.trajectory.segments:
            for name, values in _arrays(segment):
                if values.dtype.name == "uint8" and values.ndim == 4 and values.shape[3] == 3:
                    for place, frame in enumerate(values, start):
                        self._recording.set_time("decision", sequence=place)
                        self._put(name, self._rerun.Image(frame).compress(jpeg_quality=QUALITY))
                elif 0 < values[0].size <= MOST_NUMBERS:
                    self._curves(name, range(start, start + len(values)), values.reshape(len(values), -1))
            rewards = [(start + turn.start, turn.reward) for turn in segment.turns if turn.reward is not None]
            if rewards:
                self._curves("turn_reward", [place for place, _ in rewards], [[value] for _, value in rewards])
            start += len(segment)
        return max(0, start - 1)

    def _curves(self, name: str, times: Sequence[int], rows: Any) -> None:
        flat = [float(value) for row in rows for value in row]
        scalars = self._rerun.Scalars.columns(scalars=flat).partition([len(row) for row in rows])
        self._recording.send_columns(self._path(name), [self._rerun.TimeColumn("decision", sequence=times)], scalars)


def _arrays(segment: Segment) -> Iterator[tuple[str, Any]]:
    """The arrays as those of numpy. What was not decided in an episode that was cut short is left out."""
    import numpy

    sampled = sum(segment.loss_mask)
    for name, array in segment.arrays.items():
        values = numpy.asarray(array)
        values = values if name.startswith("observation/") else values[:sampled]
        if len(values):
            yield name, values


def _said(message: Message) -> str:
    """A message as one text."""
    parts = [message.content] if isinstance(message.content, str) else []
    if not isinstance(message.content, str):
        parts = [part.text if isinstance(part, TextPart) else f"[image {part.sha256[:12]}]" for part in message.content]
    calls = [f"{call.name}({call.error or text(call.arguments)})" for call in message.tool_calls]
    return str(plain("\n".join([*filter(None, parts), *calls])))


__all__ = ["write"]
