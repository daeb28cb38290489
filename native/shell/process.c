/*
 * A process from a session: a copy of the shell as it is now, which runs one text and never writes anything back.
 *
 * The copy is a grandchild, so that it becomes a child of init and no job of this shell. It runs nothing of the user's before init has put it
 * into its own group and said so through the birth pair.
 */
#include "bash.h"
#include "calls.h"
#include "parts.h"

enum { SUBSHELL_LIKE_PAREN = 0x02, SUBSHELL_RESETS_TRAPS = 0x80, AS_ONE_COMMAND = 2 };

/* What bash does at the beginning of `( … )`: no jobs, no traps, but the strings of the traps for `trap -p`. */
static void become_subshell(void)
{
	if (&subshell_level != NULL)
		subshell_level++;
	if (&login_shell != NULL)
		login_shell = 0;
	subshell_environment = SUBSHELL_LIKE_PAREN;
	reset_terminating_signals();
	if (clear_pending_traps != NULL)
		clear_pending_traps();
	reset_signal_handlers();
	subshell_environment |= SUBSHELL_RESETS_TRAPS;
	if (set_sigint_handler != NULL)
		set_sigint_handler();
	without_job_control();
	/* As for `bash -c`: the last command takes the place of the shell. */
	startup_state = AS_ONE_COMMAND;
}

static _Noreturn void process_main(const struct order *order, int line)
{
	char go;
	CALL_1(NR_CLOSE, line);
	CALL_1(NR_SETSID, 0);
	struct trouble trouble = descriptors_give(order, true);
	if (trouble.code == 0)
		trouble = surroundings_enter(order);
	struct session_birth birth = { trouble.code, trouble.error };
	long sent = CALL_4(NR_SENDTO, order->birth, &birth, sizeof(birth), SEND_NO_SIGNAL);
	if (sent < 0 || birth.code != 0)
		leave_now(126);
	long count;
	do
		count = CALL_3(NR_READ, order->birth, &go, 1);
	while (count == -E_INTERRUPTED);
	if (count != 1)
		leave_now(126);
	CALL_1(NR_CLOSE, order->birth);
	become_subshell();
	exit_shell(shell_execute(order->text, 0));
}

void process_launch(const struct order *order, int line)
{
	uint64_t child = (uint64_t)1 << (SIGNAL_CHILD - 1), before;
	int status = 0;
	long waited;
	/* Bash must not hear of the child in between: its trap for CHLD would run for us. */
	CALL_4(NR_RT_SIGPROCMASK, MASK_BLOCK, &child, &before, sizeof(before));
	int pid = fork();
	if (pid == 0) {
		pid = fork();
		if (pid != 0)
			leave_now(pid < 0);
		CALL_4(NR_RT_SIGPROCMASK, MASK_SET, &before, NULL, sizeof(before));
		process_main(order, line);
	}
	do
		waited = pid < 0 ? 0 : CALL_4(NR_WAIT4, pid, &status, 0, NULL);
	while (waited == -E_INTERRUPTED);
	CALL_4(NR_RT_SIGPROCMASK, MASK_SET, &before, NULL, sizeof(before));
	if (pid < 0 || status != 0)
		session_say(ANSWER_NOT_RUN, CODE_FORK, E_AGAIN);
	else
		session_say(ANSWER_DONE, 0, 0);
}
