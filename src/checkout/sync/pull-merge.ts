/** A path of which the two sides made different things. */
export interface PullConflict {
  readonly path: string;
  readonly reason: 'both_changed' | 'exists_here' | 'changed_meanwhile' | 'large_file_pointer';
}
