/* What the end of a run means for its journal. */
#include "runs.h"

bool journal_ends(struct run *run, bool drained, bool closed)
{
	uint8_t room[JOURNAL_HEADER + 5];
	struct journal *journal = run->journal;
	if (drained && !run->exit_recorded && journal->pending == NULL) {
		put_u32(room + JOURNAL_HEADER, run->record->status);
		room[JOURNAL_HEADER + 4] = run->record->why;
		journal_append(journal, JOURNAL_LEADER_ENDED, room, 5);
		run->exit_recorded = true;
	}
	if (closed && run->exit_recorded && !run->tree_recorded && journal->pending == NULL) {
		journal_append(journal, JOURNAL_TREE_ENDED, room, 0);
		run->tree_recorded = true;
	}
	bool written = journal_holds(run) == ALL_ENDED;
	journal_tell(journal, written);
	return written;
}

enum record_state journal_holds(const struct run *run)
{
	const uint8_t *pending = run->journal->pending;
	if (run->tree_recorded && pending == NULL)
		return ALL_ENDED;
	/* Behind a pending record nothing is written, but before it all is. */
	return run->exit_recorded && (pending == NULL || pending[4] != JOURNAL_LEADER_ENDED) ? TREE_LIVES : LEADER_RUNS;
}
