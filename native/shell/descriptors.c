/*
 * Which descriptors of the shell lead to a command's pipes.
 *
 * Each command has pipes of its own, so between commands the shell's 0, 1 and 2 lead nowhere, and a command's are put in their place. What
 * the user has redirected (`exec >file`) is left alone, and what the user has copied (`exec 3>&1`, `exec 2>&1`) follows: an open file of ours
 * carries a mark that its copies share, a signal number that is never sent because nobody asks for signals (F_SETSIG without O_ASYNC).
 *
 * Always true between commands: held[] are the descriptors that were marked when the last command ended, and all of them lead to `idle`.
 */
#include "calls.h"
#include "parts.h"

#define LOOKED_AT 64 /* descriptors from here on are not followed */

enum { MARK_INPUT = 50, MARK_OUTPUT, MARK_ERRORS };

static int idle = -1;
static struct {
	int number, mark;
} held[LOOKED_AT];
static int held_count;

void descriptors_open(int null)
{
	idle = null;
	CALL_3(NR_FCNTL, idle, FD_SET_SIGNAL, MARK_INPUT);
	for (held_count = 0; held_count < 3; held_count++) {
		held[held_count].number = held_count;
		held[held_count].mark = MARK_INPUT + held_count;
		CALL_3(NR_DUP3, idle, held_count, 0);
	}
}

static long put(int from, int to)
{
	long flags = to > 2 ? CALL_2(NR_FCNTL, to, FD_GET_FLAGS) : 0;
	return CALL_3(NR_DUP3, from, to, flags > 0 ? OPEN_CLOEXEC : 0);
}

/* `all`: 0, 1 and 2 whatever the user has made of them. Closes what the order brought. */
struct trouble descriptors_give(const struct order *order, bool all)
{
	int brought[3] = { order->input >= 0 ? order->input : idle, order->output, order->errors };
	struct trouble trouble = { 0, 0 };
	long result = 0;
	for (int i = 0; i < 3 && result >= 0; i++)
		result = CALL_3(NR_FCNTL, brought[i], FD_SET_SIGNAL, MARK_INPUT + i);
	for (int i = 0; i < held_count && result >= 0; i++)
		result = put(brought[held[i].mark - MARK_INPUT], held[i].number);
	for (int i = 0; all && i < 3 && result >= 0; i++)
		result = put(brought[i], i);
	for (int i = 0; i < 3; i++)
		if (brought[i] != idle)
			CALL_1(NR_CLOSE, brought[i]);
	if (result < 0)
		trouble = (struct trouble){ CODE_OTHER, (uint32_t)-result };
	return trouble;
}

/* Which numbers are open, in one call: asking each would be most of what a builtin costs. Where the kernel does not tell, all may be. */
static void look(struct polled *numbers)
{
	long at_once[2] = { 0, 0 };
	for (int i = 0; i < LOOKED_AT; i++)
		numbers[i] = (struct polled){ .descriptor = i };
	CALL_4(NR_PPOLL, numbers, LOOKED_AT, at_once, NULL);
}

void descriptors_take_back(void)
{
	struct polled numbers[LOOKED_AT];
	look(numbers);
	held_count = 0;
	for (int number = 0; number < LOOKED_AT; number++) {
		if ((numbers[number].found & POLL_NOT_OPEN) != 0)
			continue;
		long mark = CALL_2(NR_FCNTL, number, FD_GET_SIGNAL);
		if (mark < MARK_INPUT || mark > MARK_ERRORS)
			continue;
		held[held_count].number = number;
		held[held_count++].mark = (int)mark;
	}
	/* All at once, with the answer right behind: init, which is woken by the end of a pipe, finds them together. */
	for (int i = 0; i < held_count; i++)
		put(idle, held[i].number);
}
