/**
 * Named places where a test may stop, delay or end the program, to see what a crash there leaves behind. In production
 * every point is `noFaults`, which does nothing.
 */
export interface FaultPoints {
  hit(name: string): Promise<void>;
}

export const noFaults: FaultPoints = { hit: async () => {} };
