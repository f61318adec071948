/** The most ranks that a job has. */
const MOST = 8192;

/** 0, 1, 2 and 5 for `0-2,5`. */
export function numbersOf(ranks: string): number[] {
  return ranks
    .split(",")
    .flatMap((part) => {
      const [first = 0, last = first] = part.split("-").map(Number);
      return Array.from({ length: Math.min(Math.max(0, last - first) + 1, MOST) }, (_, index) => first + index);
    })
    .slice(0, MOST);
}

/** `0,1,2,5` for `0-2,5`. */
export const listed = (ranks: string): string => numbersOf(ranks).join(",");
