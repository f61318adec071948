/** A shell's answers, each as a line, and its end in words. */
import type { ApiError } from "./api.ts";

/** One answer: the shell's name, what it wrote (base64), or its end. */
export interface ShellPart {
  shell?: string;
  data?: string;
  exitStatus?: number;
  problem?: string;
  error?: { message: string };
}

/** How the shell ended, empty while it has not. */
export function ending(part: ShellPart): string {
  if (part.exitStatus !== undefined) return `The shell has ended with exit status ${part.exitStatus}.`;
  const problem = part.error?.message ?? part.problem;
  return problem ? `The shell was ended: ${problem.replace(/\.$/, "")}.` : "";
}

/** Why an answer broke off, by what the controller says of the job afterwards; null: the job may still be read. */
export function broken(found: ApiError | null): string {
  if (!found) return "The connection broke, which ended the shell. Its rank has noticed nothing.";
  if (found.status === 0) return "The controller does not answer, which ended the shell. Its rank has noticed nothing.";
  return `The shell was ended: ${found.message}`;
}
