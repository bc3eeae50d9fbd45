"""Group sequences that share a prefix in a packed row.

Sequences with equal prompts form a family. A sequence with ``shares_any_prefix``, such as a segment of a trajectory
whose context was rewritten, joins others at the longest common prefix for which the family feeds fewer tokens than its
members would separately. Prefixes are compared by tokens and images: equal placeholder tokens of different images
differ.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rlcore_trainer.batching.sequence import TrainingSequence

ITEM = array("i").itemsize

Names = dict[tuple[str, bytes], int]
"""A number for each image, by content hash and placeholder tokens."""


@dataclass(frozen=True, slots=True)
class Family:
    """Sequences that share a prefix, or a single sequence without a shared prefix."""

    members: tuple[int, ...]
    prompt: int
    """Number of prefix tokens that are fed; 0 if no prefix is shared."""
    lengths: tuple[int, ...]
    """Number of tokens that must be fed for each member, including the prefix."""

    @classmethod
    def of(cls, members: Sequence[int], prefix: int, lengths: Sequence[int]) -> Family:
        """Create the family of ``members`` with ``prefix`` common tokens and ``lengths`` fed tokens."""
        # A prefix may itself contain trained tokens, so not every member needs all of it.
        prompt = min(prefix, max(lengths)) if len(members) > 1 else 0
        return cls(tuple(members), prompt, tuple(lengths))

    @property
    def responses(self) -> tuple[int, ...]:
        """Number of tokens that each member feeds after the prefix."""
        return tuple(max(0, length - self.prompt) for length in self.lengths)

    @property
    def fed(self) -> int:
        """Number of tokens that are fed for the whole family."""
        return self.prompt + sum(self.responses)

    @property
    def longest(self) -> int:
        """The first member for which the whole prefix is fed."""
        return next(i for i, length in zip(self.members, self.lengths, strict=True) if length >= self.prompt)


class _Candidate(NamedTuple):
    """Sequences that may still join others at a shorter prefix."""

    members: tuple[int, ...]
    prefix: int
    whole: bool
    """Whether the prefix is a whole prompt, which cannot be shared in part."""


class _Node(NamedTuple):
    """A common prefix length and the candidates with that prefix."""

    prefix: int
    candidates: list[_Candidate]


def families_of(sequences: Sequence[TrainingSequence]) -> list[Family]:
    """Group all sequences with a trained token into families, in the order of their first members."""
    fed = [sequence.fed for sequence in sequences]
    names: Names = {}
    by_prompt: dict[bytes | int, list[int]] = {}
    keys: list[tuple[bytes, _Candidate]] = []
    for i, sequence in enumerate(sequences):
        if fed[i] and sequence.shares_any_prefix:
            keys.append((_key(sequence, fed[i], names), _Candidate((i,), fed[i], whole=False)))
        elif fed[i]:
            by_prompt.setdefault(_key(sequence, sequence.prompt_length, names) or i, []).append(i)
    found = [_Candidate(tuple(members), sequences[members[0]].prompt_length, True) for members in by_prompt.values()]
    if keys:
        keys += [(prompt, one) for prompt, one in zip(by_prompt, found, strict=True) if isinstance(prompt, bytes)]
        alone = [one for prompt, one in zip(by_prompt, found, strict=True) if isinstance(prompt, int)]
        found = sorted([*alone, *_joined(keys, fed)], key=lambda one: one.members[0])
    return [_family(one, fed) for one in found]


def cut(family: Family, max_tokens: int) -> list[Family]:
    """Split a family into parts of at most ``max_tokens``, if possible. A single-member part shares no prefix."""
    parts: list[list[int]] = []
    room = 0
    for k, response in enumerate(family.responses):
        if not parts or response > room:
            parts.append([])
            room = max_tokens - family.prompt
        parts[-1].append(k)
        room -= response
    if len(parts) == 1:
        return [family]
    return [
        Family.of([family.members[k] for k in part], family.prompt, [family.lengths[k] for k in part]) for part in parts
    ]


def _family(one: _Candidate, fed: Sequence[int]) -> Family:
    return Family.of(one.members, one.prefix, [fed[i] for i in one.members])


def _joined(keys: list[tuple[bytes, _Candidate]], fed: Sequence[int]) -> list[_Candidate]:
    """Join candidates along the tree of their common prefixes, the longest prefixes first."""
    keys.sort(key=lambda item: (item[0], item[1].members))
    open_nodes = [_Node(0, [])]

    def close(prefix: int) -> None:
        """Join the candidates whose common prefix is longer than ``prefix``."""
        while open_nodes[-1].prefix > prefix:
            done = open_nodes.pop()
            if open_nodes[-1].prefix < prefix:
                open_nodes.append(_Node(prefix, []))
            open_nodes[-1].candidates.extend(_join(done, fed))

    before = b""
    for key, candidate in keys:
        close(_common_prefix(before, key))
        if open_nodes[-1].prefix < len(key) // ITEM:
            open_nodes.append(_Node(len(key) // ITEM, []))
        open_nodes[-1].candidates.append(candidate)
        before = key
    close(0)
    return open_nodes[0].candidates


def _join(node: _Node, fed: Sequence[int]) -> list[_Candidate]:
    """Return the candidates of a node, merging those that feed fewer tokens together than separately."""
    # Any other candidate already feeds all tokens of the sequences that end here.
    ending = [one for one in node.candidates if all(fed[i] <= node.prefix for i in one.members)]
    left = [one for one in node.candidates if one not in ending]
    joining: list[_Candidate] = []
    apart = together = 0
    for one in left:
        own = _family(one, fed).fed
        added = sum(max(0, fed[i] - node.prefix) for i in one.members)
        if added < own and (one.prefix == node.prefix or not one.whole):
            joining.append(one)
            apart, together = apart + own, together + added
    if len(joining) > 1 and node.prefix + together < apart:
        left = [_union(joining, node.prefix), *(one for one in left if one not in joining)]
    if not left:
        return [_union(ending, node.prefix)]
    return [_union([left[0], *ending], left[0].prefix), *left[1:]]


def _union(candidates: Sequence[_Candidate], prefix: int) -> _Candidate:
    members = tuple(sorted(i for one in candidates for i in one.members))
    return _Candidate(members, prefix, whole=any(one.whole for one in candidates))


def _key(sequence: TrainingSequence, length: int, names: Names) -> bytes:
    """Return the first tokens as bytes; image tokens are replaced by a negative number unique to the image."""
    ids = sequence.token_ids[:length].tobytes()
    spans = [span for span in sequence.media if span.offset < length]
    if not spans:
        return ids
    marked = array("i", ids)
    for span in spans:
        place = slice(span.offset, min(span.offset + span.length, length))
        name = names.setdefault((span.sha256, marked[place].tobytes()), len(names))
        marked[place] = array("i", [-1 - name]) * (place.stop - place.start)
    return marked.tobytes()


def _common_prefix(one: bytes, other: bytes) -> int:
    """Return the length of the common prefix in tokens."""
    low, high = 0, min(len(one), len(other)) // ITEM
    while low < high:
        middle = (low + high + 1) // 2
        if one[low * ITEM : middle * ITEM] == other[low * ITEM : middle * ITEM]:
            low = middle
        else:
            high = middle - 1
    return low
