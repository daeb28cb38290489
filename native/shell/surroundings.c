/*
 * The working directory and the variables of one command, and what was there before it.
 *
 * A variable that is set for a command is taken out of the shell with its value, attributes and functions, and a plain exported one is put
 * in its place; afterwards whatever the command left under that name goes, and what was taken out is put back as it was.
 *
 * Always true between commands: nothing is saved, and no directory is held open.
 */
#include "bash.h"
#include "calls.h"
#include "parts.h"

#define HIGH 230
#define PATH_BYTES 4096

static struct saved {
	const char *name;
	struct variable was;
	bool existed;
} saved[ORDER_VARIABLES_MAX + 2];
static unsigned saved_count;

static int directory = -1;
static char *directory_name; /* bash's own idea of it, taken out of bash */
static char new_directory[PATH_BYTES], old_name[PATH_BYTES];

static struct variable *find(const char *name)
{
	return find_variable_noref != NULL ? find_variable_noref(name) : find_variable(name);
}

/* Takes the contents out of a variable and removes what is left of it. */
static void take_out(const char *name, struct saved *into)
{
	struct variable *variable = find(name);
	into->name = name;
	into->existed = variable != NULL;
	if (variable == NULL)
		return;
	into->was = *variable;
	variable->value = variable->exported_text = NULL;
	variable->dynamic_value = variable->assign_function = NULL;
	variable->attributes = 0;
	unbind_variable(name);
}

static void remove_now(const char *name)
{
	struct variable *variable = find(name);
	if (variable == NULL)
		return;
	variable->attributes &= ~VARIABLE_READ_ONLY;
	if (find_variable_noref != NULL && find_variable(name) != variable) {
		/* A reference to another variable, which is none of our business. */
		struct saved dropped;
		take_out(name, &dropped);
		return;
	}
	unbind_variable(name);
}

static void put_in(const char *name, char *value, bool exported)
{
	struct variable *variable = bind_variable(name, value, 0);
	if (variable != NULL && exported)
		variable->attributes |= VARIABLE_EXPORTED;
	array_needs_making = 1;
	stupidly_hack_special_variables(name);
}

static void put_back(struct saved *from)
{
	static char nothing[] = "";
	remove_now(from->name);
	if (from->existed) {
		struct variable *variable = bind_variable(from->name, nothing, 0);
		if (variable != NULL) {
			char *name = variable->name;
			xfree(variable->value);
			*variable = from->was;
			variable->name = name;
		}
	}
	array_needs_making = 1;
	stupidly_hack_special_variables(from->name);
}

static size_t length_of(const char *text)
{
	size_t length = 0;
	while (text[length] != 0)
		length++;
	return length;
}

/* Cuts `NAME=value` in two: the value, or NULL when the variable is to be unset. */
static char *cut(char *entry)
{
	for (; *entry != 0; entry++) {
		if (*entry == '=') {
			*entry = 0;
			return entry + 1;
		}
	}
	return NULL;
}

static struct trouble enter_directory(const char *path)
{
	static char pwd[] = "PWD", old_pwd[] = "OLDPWD";
	long here = CALL_4(NR_OPENAT, HERE, ".", OPEN_PATH | OPEN_CLOEXEC, 0);
	if (here < 0)
		return (struct trouble){ CODE_OTHER, (uint32_t)-here };
	long result = CALL_1(NR_CHDIR, path);
	long length = result < 0 ? result : CALL_2(NR_GETCWD, new_directory, sizeof(new_directory));
	if (length < 0) {
		if (result >= 0)
			CALL_1(NR_FCHDIR, here);
		CALL_1(NR_CLOSE, here);
		return (struct trouble){ CODE_DIRECTORY, (uint32_t)-length };
	}
	long high = CALL_3(NR_FCNTL, here, FD_DUP_CLOEXEC, HIGH);
	directory = (int)(high < 0 ? here : high);
	if (high >= 0)
		CALL_1(NR_CLOSE, here);
	directory_name = the_current_working_directory;
	the_current_working_directory = NULL;
	set_working_directory(new_directory);

	struct saved *entry = &saved[saved_count++];
	take_out(pwd, entry);
	put_in(pwd, new_directory, !entry->existed || (entry->was.attributes & VARIABLE_EXPORTED) != 0);
	entry = &saved[saved_count++];
	take_out(old_pwd, entry);
	if (entry->existed && entry->was.value != NULL && length_of(entry->was.value) < sizeof(old_name)) {
		__builtin_memcpy(old_name, entry->was.value, length_of(entry->was.value) + 1);
		put_in(old_pwd, old_name, (entry->was.attributes & VARIABLE_EXPORTED) != 0);
	}
	return (struct trouble){ 0, 0 };
}

struct trouble surroundings_enter(const struct order *order)
{
	struct trouble trouble = { 0, 0 };
	if (order->directory != NULL)
		trouble = enter_directory(order->directory);
	if (trouble.code != 0)
		return trouble;
	for (char *entry = order->variables, *next; entry < order->variables_end; entry = next) {
		next = entry + length_of(entry) + 1;
		char *value = cut(entry);
		take_out(entry, &saved[saved_count++]);
		if (value != NULL)
			put_in(entry, value, true);
		else
			stupidly_hack_special_variables(entry);
	}
	return trouble;
}

void surroundings_leave(void)
{
	while (saved_count > 0)
		put_back(&saved[--saved_count]);
	if (directory < 0)
		return;
	CALL_1(NR_FCHDIR, directory);
	CALL_1(NR_CLOSE, directory);
	directory = -1;
	if (the_current_working_directory != NULL)
		xfree(the_current_working_directory);
	the_current_working_directory = directory_name;
}

/* For good, all or nothing: a name that is read-only is told by its number, and nothing has changed. */
struct trouble variables_keep(const struct order *order)
{
	uint32_t number = 0;
	for (char *entry = order->variables; entry < order->variables_end; number++) {
		char *next = entry + length_of(entry) + 1, *value = cut(entry);
		const struct variable *variable = find(entry);
		if (variable != NULL && (variable->attributes & VARIABLE_READ_ONLY) != 0)
			return (struct trouble){ CODE_READ_ONLY, number };
		if (value != NULL)
			value[-1] = '=';
		entry = next;
	}
	for (char *entry = order->variables, *next; entry < order->variables_end; entry = next) {
		next = entry + length_of(entry) + 1;
		char *value = cut(entry);
		remove_now(entry);
		if (value != NULL)
			put_in(entry, value, true);
		array_needs_making = 1;
	}
	return (struct trouble){ 0, 0 };
}
