/*
 * The object that makes a bash a session: its load hook takes orders from init until the shell ends.
 *
 * It is loaded by `enable -f` and never becomes a builtin, because its hook does not return: a text is given, unchanged, to bash's own
 * parse_and_execute, and what bash would do with an error in a script it does here. The hook stands where bash's reader of scripts stands: what
 * parse_and_execute does not catch itself jumps to us (`top_level`). A command that bash gives up ends there and the shell goes on; what
 * ends a script (exit, set -e, a failed `${x?}`) ends the shell, traps and all.
 *
 * Always true: no command, variable, function or alias of ours exists in the shell; the descriptors of ours are close-on-exec and high; a
 * process forked by bash never comes back to the loop.
 */
#include "bash.h"
#include "calls.h"
#include "parts.h"

#define HIGH 240
#define DESCRIPTORS_MAX 5

static int line = -1;
static long own_pid;
static uint32_t serial;
static bool executing; /* a text */
static struct order current;
static char room[ORDER_INLINE_MAX + sizeof(struct session_order)] __attribute__((aligned(8)));

/* The compiler may ask for these where there is no libc of ours. */
__attribute__((visibility("hidden"))) void *memcpy(void *to, const void *from, size_t count)
{
	char *out = to;
	for (const char *in = from; count > 0; count--)
		*out++ = *in++;
	return to;
}

__attribute__((visibility("hidden"))) void *memset(void *at, int value, size_t count)
{
	for (char *out = at; count > 0; count--)
		*out++ = (char)value;
	return at;
}

static void say(const struct session_answer *answer)
{
	long sent;
	do
		sent = CALL_4(NR_SENDTO, line, answer, sizeof(*answer), SEND_NO_SIGNAL);
	while (sent == -E_INTERRUPTED);
	/* Without its line a shell could never be asked for anything again. */
	if (sent < 0)
		leave_now(1);
}

void session_say(uint32_t kind, uint32_t value, uint32_t error)
{
	struct session_answer answer = { .kind = kind, .serial = serial, .value = value, .error = error };
	say(&answer);
}

/* Bash has codes beyond 255 for some failures; a script would end with these. */
static int status_of(int result)
{
	enum { SHELL_ERRORS = 256, BAD_SYNTAX = 257, BAD_USAGE = 258 };
	if (result <= SHELL_ERRORS)
		return result & 255;
	return result == BAD_SYNTAX || result == BAD_USAGE ? 2 : 1;
}

int shell_execute(char *text, int flags)
{
	/* The text's name is $0, so that messages do not name it twice. */
	const char *name = &dollar_vars != NULL && dollar_vars[0] != NULL ? dollar_vars[0] : "bash";
	parse_and_execute_level = indirection_level = 0;
	if (&executing_builtin != NULL)
		executing_builtin = 0;
	int result = status_of(parse_and_execute(text, name, EVALUATE_NO_FREE | EVALUATE_FROM_LINE_1 | flags));
	/* Where it tells more than the result, as of a text that cannot be parsed in older versions, it counts. */
	if (last_command_exit_value > 255)
		result = last_command_exit_value = status_of(last_command_exit_value);
	return result;
}

static void close_brought(const struct order *order)
{
	const int brought[] = { order->input, order->output, order->errors, order->birth };
	for (unsigned i = 0; i < sizeof(brought) / sizeof(brought[0]); i++)
		if (brought[i] >= 0)
			CALL_1(NR_CLOSE, brought[i]);
}

static void release(struct order *order)
{
	if (order->file != NULL)
		CALL_2(NR_MUNMAP, order->file, order->file_length);
	order->file = NULL;
}

static void finish(int result)
{
	executing = false;
	surroundings_leave();
	descriptors_take_back();
	session_say(ANSWER_DONE, (uint32_t)result, 0);
}

static void execute(const struct order *order)
{
	struct trouble trouble = descriptors_give(order, false);
	if (trouble.code == 0)
		trouble = surroundings_enter(order);
	if (trouble.code != 0) {
		surroundings_leave();
		descriptors_take_back();
		session_say(ANSWER_NOT_RUN, trouble.code, trouble.error);
		return;
	}
	executing = true;
	finish(shell_execute(order->text, EVALUATE_AS_SCRIPT));
}

/* Bash has jumped past parse_and_execute: as its reader of scripts, goes on after a command that was given up, and ends otherwise. */
static void land(int code)
{
	if (last_command_exit_value == 0 && code == JUMP_DISCARD)
		last_command_exit_value = 1;
	if (code != JUMP_DISCARD || CALL_1(NR_GETPID, 0) != own_pid) {
		if (code == JUMP_ERROR_EXIT && &exit_immediately_on_error != NULL && exit_immediately_on_error != 0 && reset_local_contexts != NULL)
			reset_local_contexts();
		exit_shell(last_command_exit_value);
	}
	if (restore_sigmask != NULL)
		restore_sigmask();
	if (&temporary_env != NULL && temporary_env != NULL && dispose_used_env_vars != NULL)
		dispose_used_env_vars();
	if (executing)
		finish(status_of(last_command_exit_value));
	release(&current);
}

/* Moves a descriptor out of the user's way. */
static int move_up(int number)
{
	long high = CALL_3(NR_FCNTL, number, FD_DUP_CLOEXEC, HIGH);
	if (high < 0)
		leave_now(1);
	CALL_1(NR_CLOSE, number);
	return (int)high;
}

/* Takes the descriptors out of a message: how many. */
static int passed(const struct message *message, int *numbers)
{
	const struct control_header *header = message->control;
	if (message->control_length < sizeof(*header) || header->level != LEVEL_SOCKET || header->type != PASSED_DESCRIPTORS)
		return 0;
	int count = (int)((header->length - sizeof(*header)) / sizeof(int));
	memcpy(numbers, header + 1, (size_t)count * sizeof(int));
	/* Where the user has closed 0, 1 or 2 they were put there, and would stay open in its place. */
	for (int i = 0; i < count; i++)
		if (numbers[i] <= 2)
			numbers[i] = move_up(numbers[i]);
	return count;
}

/* One message: its length, or a negated errno. Signals that end the shell do so here. */
static long receive(struct message *message)
{
	for (;;) {
		message->flags = 0;
		long count = CALL_3(NR_RECVMSG, line, message, RECEIVE_CLOEXEC);
		if (count != -E_INTERRUPTED)
			return count;
		if (&terminating_signal != NULL && terminating_signal != 0 && termsig_handler != NULL)
			termsig_handler(terminating_signal);
	}
}

static char *map_file(struct order *order, int file, size_t length)
{
	enum { READ_WRITE = 3, PRIVATE = 2 };
	long mapping = call6(NR_MMAP, 0, (long)length, READ_WRITE, PRIVATE, file, 0);
	CALL_1(NR_CLOSE, file);
	if (mapping < 0 && mapping > -4096)
		return NULL;
	order->file = (void *)mapping;
	order->file_length = length;
	return order->file;
}

/* Finds the parts of an order: false without the memory or the descriptors for it. Init is believed about lengths that it made. */
static bool lay_out(struct order *order, const int *numbers, int count, char *body)
{
	const struct session_order *head = &order->head;
	int used = 0;
	order->input = (head->flags & ORDER_NO_INPUT) == 0 && head->kind != ORDER_KEEP && used < count ? numbers[used++] : -1;
	order->output = head->kind != ORDER_KEEP && used < count ? numbers[used++] : -1;
	order->errors = head->kind != ORDER_KEEP && used < count ? numbers[used++] : -1;
	order->birth = head->kind == ORDER_FORK && used < count ? numbers[used++] : -1;
	int file = (head->flags & ORDER_IN_FILE) != 0 && used < count ? numbers[used++] : -1;
	bool complete = (head->kind == ORDER_KEEP || order->errors >= 0) && (head->kind != ORDER_FORK || order->birth >= 0);
	if ((head->flags & ORDER_IN_FILE) != 0)
		body = file < 0 ? NULL : map_file(order, file, (size_t)head->directory + head->variables + head->text);
	if (body == NULL || !complete)
		return false;
	order->directory = head->directory > 0 ? body : NULL;
	order->variables = body + head->directory;
	order->variables_end = order->variables + head->variables;
	order->text = order->variables_end;
	return true;
}

static void serve(void)
{
	int numbers[DESCRIPTORS_MAX] = { -1, -1, -1, -1, -1 };
	char control[sizeof(struct control_header) + sizeof(numbers) + 8] __attribute__((aligned(8)));
	struct span span = { room, sizeof(room) };
	struct message message = { .spans = &span, .span_count = 1, .control = control, .control_length = sizeof(control) };
	struct order *order = &current;
	long length = receive(&message);
	if (length < (long)sizeof(order->head) || (message.flags & MESSAGE_CUT) != 0)
		leave_now(1);
	*order = (struct order){ .file = NULL };
	memcpy(&order->head, room, sizeof(order->head));
	serial = order->head.serial;
	int count = passed(&message, numbers);
	if (!lay_out(order, numbers, count, room + sizeof(order->head)) || (message.flags & DESCRIPTORS_CUT) != 0) {
		close_brought(order);
		session_say(ANSWER_NOT_RUN, CODE_OTHER, E_TOO_MANY_FILES);
	} else if (order->head.kind == ORDER_EXECUTE) {
		execute(order);
	} else if (order->head.kind == ORDER_FORK) {
		process_launch(order, line);
		close_brought(order);
	} else {
		struct trouble trouble = variables_keep(order);
		session_say(trouble.code == 0 ? ANSWER_DONE : ANSWER_NOT_RUN, trouble.code, trouble.error);
	}
	release(order);
}

#define NEEDED(symbol) { (const void *)&symbol, #symbol }

static const char *missing_symbol(void)
{
	const struct {
		const void *address;
		const char *name;
	} needed[] = {
		NEEDED(parse_and_execute), NEEDED(find_variable), NEEDED(bind_variable), NEEDED(unbind_variable),
		NEEDED(stupidly_hack_special_variables), NEEDED(xfree), NEEDED(exit_shell), NEEDED(fork), NEEDED(set_working_directory),
		NEEDED(without_job_control), NEEDED(reset_signal_handlers), NEEDED(reset_terminating_signals), NEEDED(unset_bash_input),
		NEEDED(top_level), NEEDED(_setjmp),
		NEEDED(last_command_exit_value), NEEDED(array_needs_making), NEEDED(parse_and_execute_level), NEEDED(indirection_level),
		NEEDED(startup_state), NEEDED(subshell_environment), NEEDED(expand_aliases), NEEDED(the_current_working_directory),
	};
	for (unsigned i = 0; i < sizeof(needed) / sizeof(needed[0]); i++)
		if (needed[i].address == NULL)
			return needed[i].name;
	return NULL;
}

static void refuse(const char *symbol)
{
	struct session_answer answer = { .kind = ANSWER_MISSING };
	for (unsigned i = 0; symbol[i] != 0 && i < sizeof(answer.text) - 1; i++)
		answer.text[i] = symbol[i];
	say(&answer);
	leave_now(1);
}

/* What the way in has left behind: stdin as the script, and that it was one. */
static void forget_beginning(void)
{
	unset_bash_input(1);
	if (&read_from_stdin != NULL)
		read_from_stdin = 0;
	expand_aliases = 1;
	if (&expaliases_flag != NULL)
		expaliases_flag = 1;
	last_command_exit_value = 0;
}

__attribute__((visibility("default"))) int atoll_session_builtin_load(char *name);
int atoll_session_builtin_load(char *name)
{
	(void)name;
	line = move_up(SESSION_LINE);
	CALL_1(NR_CLOSE, SESSION_OBJECT);
	const char *missing = missing_symbol();
	if (missing != NULL)
		refuse(missing);
	forget_beginning();
	descriptors_open(move_up(1));
	own_pid = CALL_1(NR_GETPID, 0);
	session_say(ANSWER_READY, 0, 0);
	int code = _setjmp(top_level);
	if (code != 0)
		land(code);
	for (;;)
		serve();
}

/* bash looks for it before it calls the hook. */
struct {
	const char *name;
	int (*function)(void *list);
	int flags;
	const char *const *long_doc;
	const char *short_doc;
	void *handle;
} atoll_session_struct __attribute__((visibility("default"))) = { "atoll_session", NULL, 0, NULL, "", NULL };
