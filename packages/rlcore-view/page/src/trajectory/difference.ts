// Where conversations begin to differ.
import type { Message, Trajectory } from "../api";

/** A place in a list of messages: "piece" counts the parts of a message and then its calls. */
export interface Place {
  message: number;
  piece: number;
  offset: number;
}

/** The parts of a message and then its calls, as texts that can be compared. */
export function pieces(message: Message): string[] {
  return [
    ...message.parts.map((part) => ("text" in part ? part.text : part.image)),
    ...message.calls.map((call) => call.name + (call.code || call.arguments || call.error || "")),
  ];
}

export function messagesOf(trajectory: Trajectory): Message[] {
  return trajectory.segments.flatMap((segment) => segment.turns.flatMap((turn) => turn.messages));
}

/** The number of messages before the first turn of a policy that all trajectories share. */
export function sharedBeginning(trajectories: Trajectory[]): number {
  const beginnings = trajectories.map((one) => {
    const turns = one.segments[0]?.turns ?? [];
    const answered = turns.findIndex((turn) => turn.kind === "policy");
    return turns.slice(0, answered < 0 ? turns.length : answered).flatMap((turn) => turn.messages);
  });
  const [first, ...others] = beginnings;
  if (!first) return 0;
  const places = others.map((other) => firstDifference(first, other)?.message ?? first.length);
  return Math.min(first.length, ...places);
}

/** The first place in which two lists of messages differ; null if they are equal. */
export function firstDifference(one: Message[], other: Message[]): Place | null {
  const count = Math.max(one.length, other.length);
  for (let message = 0; message < count; message++) {
    const [left, right] = [one[message], other[message]];
    if (!left || !right || left.role !== right.role) return { message, piece: 0, offset: 0 };
    const [mine, others] = [pieces(left), pieces(right)];
    for (let piece = 0; piece < Math.max(mine.length, others.length); piece++) {
      const offset = differsAt(mine[piece] ?? "", others[piece] ?? "");
      if (offset >= 0) return { message, piece, offset };
    }
  }
  return null;
}

export function isBefore(one: Place, other: Place): boolean {
  return (one.message - other.message || one.piece - other.piece || one.offset - other.offset) < 0;
}

function differsAt(one: string, other: string): number {
  if (one === other) return -1;
  let at = 0;
  while (at < one.length && one[at] === other[at]) at++;
  // A character outside of the basic plane is two units: the mark begins at the first.
  return at > 0 && /[\uDC00-\uDFFF]/.test(one[at] ?? other[at] ?? "") ? at - 1 : at;
}
